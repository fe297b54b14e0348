"""A small tree with a lock file, a database, limits and a scoreboard, made without running anything."""

from __future__ import annotations

import json
import random
from pathlib import Path

from lowering.machine import this_machine
from mdh_lift import pipeline
from mdh_lift.pipeline import check_file
from tuning import ceilings
from tuning.ceilings import Ceilings, Level, Peak
from tuning.records import SEARCH, Step, canonical
from tuning.store import Context, Store

MATVEC = """void matvec(int n, int m, float M[n][m], float *restrict v, float *restrict w) {
#pragma mdh sizes(n=64, m=32)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            w[i] += M[i][k] * v[k];
}
"""
HEAT = """void heat(int n, int steps, double a[n], double b[n]) {
#pragma mdh
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < n - 1; i++)
            b[i] = (a[i - 1] + a[i] + a[i + 1]) / 3;
        for (int i = 1; i < n - 1; i++)
            a[i] = b[i];
    }
}
"""
GATHER = """void gather(int n, float *restrict x, float *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i * i] = x[i];
}
"""
HERE = Ceilings(
    "", # the machine is put in when it is written
    (Level("L1", 1, 8192, 1e11, 1e11, 1e11), Level("L1", 2, 8192, 2e11, 2e11, 2e11),
     Level("memory", 1, 1 << 28, 1e10, 8e9, 8e9), Level("memory", 2, 1 << 28, 2e10, 1e10, 1e10)),
    (Peak(1, 1e11, 5e10), Peak(2, 2e11, 1e11)),
)  # fmt: skip


def machine() -> str:
    return ceilings.machine_key(("cc",), this_machine().cores)


def write_ceilings() -> None:
    ceilings.save(Ceilings(machine(), HERE.levels, HERE.peaks))


def write_tree(root: Path) -> None:
    """Three files; the first was tuned: its lock block, its search with failures, a scoreboard of all."""
    (root / "matvec.c").write_text(MATVEC)
    (root / "heat.c").write_text(HEAT)
    (root / "gather.c").write_text(GATHER)
    tuned(root, "matvec.c")
    interval = {"median": 2.5, "low": 2.4, "high": 2.6}
    nests = [
        {"name": "matvec.c::matvec::0", "result": "accepted", "speedup": interval},
        {
            "name": "gather.c::gather::0",
            "result": "refused",
            "code": "MDH201",
            "reason": "index is not affine",
        },
    ]
    (root / "board.json").write_text(json.dumps({"schema_version": 1, "nests": nests}))


def tuned(root: Path, file: str, ratio: float = 2.5, evaluations: int = 6) -> None:
    """As if the first nest of a file had been tuned: an entry of the lock file and a search in the database.

    From 7 evaluations on they vary all parameters at random, and one that the times follow.
    """
    report = check_file(str(root / file))
    nest = report.nests[0]
    from mdh_core.source import SourceFile
    from mdh_lift import kernels, macros

    text = SourceFile(report.source.path, report.bare.data)
    known = macros.definitions(text, report.command)
    digest = pipeline.source_hash(text.data, nest.lifted.nest, known)
    point = dict(kernels.plan(nest.lifted).default)
    name = f"{file}::{pipeline.short_name(nest.name)}"
    speedup = {"median": ratio, "low": ratio * 0.96, "high": ratio * 1.04, "confidence": 0.95}
    block = {
        "source_hash": digest, "configuration": {"point": point}, "text_hash": "0" * 16, "seed": 0,
        "strategy": "auto", "budget": "30ev", "speedup": speedup,
        "versions": {"mdh-lift": "0.1.0", "compiler": "cc 12 <i>x</i>"},
        "verification": {"cases": 12, "sizes": ["n=64,m=32"], "max_ulp": 2.0, "kinds": {"sum": 12}},
    }  # fmt: skip
    lock = root / "mdh-lift.lock"
    content = json.loads(lock.read_text()) if lock.exists() else {"schema_version": 1, "nests": {}}
    content["nests"][name] = {machine(): {"m=32,n=64": block}}
    lock.write_text(json.dumps(content))
    with Store(root / database()) as store:
        context = Context(
            name, digest, machine(), "m=32,n=64", "-O3", "cc 12", versions={"mdh-lift": "0.1.0"}
        )
        search = store.begin(context, "greedy_ils", "30ev")
        outcomes = [
            ("ok", 9.0),
            ("ok", 4.0),
            ("compile_failed", 0),
            ("ok", 5.0),
            ("wrong_result", 0),
            ("ok", 2.0),
        ]
        rng = random.Random(file)
        for k in range(evaluations):
            outcome, ms = outcomes[k % len(outcomes)]
            tried, times = {**point, "try": k}, (ms / 1e6,) * 3
            if evaluations > len(outcomes):
                space = kernels.plan(nest.lifted).space.parameters
                tried |= {name: rng.choice(values) for name, values in space} | {"quick": k // 2 % 2}
                scale = (1 + 3 * tried["quick"]) * rng.uniform(1e-6, 2e-6)
                times = tuple(scale * rng.uniform(1, 1.02) for _ in range(7))
            step = Step(
                0, 0.5 * k, SEARCH, canonical(tried), outcome, "" if ms else f"reason {k} <b>",
                times if ms else (), f"text{k}",
            )  # fmt: skip
            store.step(search, step)
        store.finish(search, original=(10e-6, 11e-6), stopped="the budget is spent", winner=canonical(point))


def database() -> str:
    from mdh_lift.config import Config

    return Config().database.path
