"""Certificates of the whole corpus and of the catalogue, under many configurations.

    python -m campaigns.certify [--points 3] [--seed 1] [NAME...]

``--points``: configurations for each nest beside the default one; for the catalogue these are configurations
of several machine models, whose phases may differ and become stages of their own.  Prints what is refuted
or unknown and a table of all obligations.  Exit status 1 if anything is refuted.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from certify.certificate import certificate, program_certificate
from certify.obligations import REFUTED, UNKNOWN, Certificate
from frontend_c.read import CompileCommand, read
from lifter.lift import lift
from lowering.choice import default_point
from lowering.lower import Lowered, lower
from lowering.machine import ARTIFICIAL, GENERIC, OPENMP, OPENMP_L3_SIMD, OPENMP_REG_SIMD
from lowering.parameters import random_configuration
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.ir import MdhProgram
from mdh_core.source import SourceFile
from tests.catalogue import EVERYTHING

CORPUS = Path(__file__).parent.parent / "corpus"
MODELS = (ARTIFICIAL, OPENMP, OPENMP_L3_SIMD, OPENMP_REG_SIMD)
SIZE = 60  # of every dimension that a point is chosen for


def lowerings(
    programs: tuple[MdhProgram, ...], points: int, rng: random.Random
) -> Iterator[tuple[Lowered, ...]]:
    """The stages of the default point and of some random ones."""
    sizes = tuple({d.name: SIZE for d in p.hom.dims} for p in programs)
    chosen = [default_point(programs, GENERIC, sizes)]
    space = tuning_space(programs, GENERIC, sizes)
    for _ in range(2000):
        if len(chosen) > points:
            break
        point = {n: rng.choice(v) for n, v in space.parameters}
        if all(eval(r, {}, point) for r in space.restrictions):
            chosen.append(point)
    for point in chosen:
        configurations = configuration_at(programs, GENERIC, sizes, point)
        yield tuple(lower(p, c, GENERIC) for p, c in zip(programs, configurations, strict=True))


def corpus(names: Sequence[str], points: int, rng: random.Random) -> Iterator[tuple[str, Certificate]]:
    for path in sorted(CORPUS.glob("*.c")):
        if names and path.name not in names and path.stem not in names:
            continue
        text = SourceFile(path.name, path.read_bytes())
        for nest in read(text, CompileCommand(directory=str(CORPUS))).nests:
            known = lift(nest)
            if known.status != "refused":
                for stages in lowerings(known.programs, points, rng):
                    yield nest.name, certificate(nest, known.program, stages)


def catalogue(names: Sequence[str], points: int, rng: random.Random) -> Iterator[tuple[str, Certificate]]:
    for name, program in EVERYTHING.items():
        if names and name not in names:
            continue
        for stages in lowerings((program,), points, rng):
            yield name, program_certificate(program, stages[0])
        for _ in range(points):
            machine = replace(GENERIC, model=rng.choice(MODELS))
            configuration = random_configuration(rng, program, machine.model)
            yield name, program_certificate(program, lower(program, configuration, machine))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="campaigns.certify", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--points", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    counts: Counter[tuple[str, str]] = Counter()
    began, certificates = time.monotonic(), 0
    for source in (corpus, catalogue):
        for name, found in source(options.names, options.points, rng):
            certificates += 1
            for o in found.obligations:
                counts[o.name, o.status] += 1
                if o.status in (REFUTED, UNKNOWN):
                    print(f"{name}: {o}", flush=True)
    print(f"{certificates} certificates in {time.monotonic() - began:.0f} s")
    for (name, status), n in sorted(counts.items()):
        print(f"{n:7} {status:9}{name}")
    return 1 if any(status == REFUTED for _, status in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
