"""The limits of a machine: measured, kept by machine, shown by ``doctor``."""

from __future__ import annotations

import errno
import json
import re

import pytest
from click.testing import CliRunner

from lowering.machine import this_machine
from mdh_lift.cli import cli
from tuning import ceilings
from tuning.ceilings import Ceilings, CeilingsError, Level, Peak, load, matching, save

ONE = Ceilings(
    "linux-x86_64-zen3-2of4t-0a1b2c3d",
    (Level("L1", 2, 4096, 4e11, 2e11, 3e11), Level("memory", 2, 1 << 28, 4e10, 3e10, 3e10)),
    (Peak(1, 1e11, 5e10), Peak(2, 2e11, 1e11)),
)


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    monkeypatch.setenv("MDH_LIFT_STORE", str(tmp_path / "store" / "tuning.sqlite"))


def run(*words):
    return CliRunner().invoke(cli, words)


def test_what_is_kept_comes_back():
    assert load() == {}
    other = Ceilings("linux-aarch64-neoverse-4of4t-99999999", ONE.levels, ONE.peaks)
    save(ONE)
    save(other)
    assert load() == {ONE.machine: ONE, other.machine: other}
    assert (ONE.bandwidth(), ONE.bandwidth("L1"), ONE.peak(), ONE.peak("double")) == (4e10, 4e11, 2e11, 1e11)


def test_a_failed_write_leaves_what_was_measured(monkeypatch):
    save(ONE)
    before = ceilings.stored_at().read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)  # what only a write that is made sure of asks for
    with pytest.raises(CeilingsError, match="No space left"):
        save(Ceilings("linux-aarch64-neoverse-4of4t-99999999", ONE.levels, ONE.peaks))
    directory = ceilings.stored_at().parent
    assert ceilings.stored_at().read_bytes() == before and [p.name for p in directory.iterdir()] == ["ceilings.json"]


def test_other_flags_are_no_other_machine():
    known = {ONE.machine: ONE}
    assert matching(known, "linux-x86_64-zen3-2of4t-ffffffff") == ONE
    assert matching(known, "linux-x86_64-zen3-4of4t-ffffffff") is None
    assert matching(known, "linux-x86_64-zen3-2of4t-cuda-ffffffff") is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema_version": 9}', '{"schema_version": 1, "machines": {"m": {}}}']
)
def test_a_file_that_is_none_is_told(text):
    path = ceilings.stored_at()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CeilingsError, match=re.escape(str(path))):
        load()
    result = run("doctor")
    assert result.exit_code == 4 and "MDH823" in result.stderr
    save(ONE)  # and measuring again mends it
    assert load() == {ONE.machine: ONE}


def test_levels_are_larger_one_after_the_other():
    found = ceilings._arrays(this_machine(), 2)
    assert found[0][0] == "L1" and found[-1][0] == "memory"
    sizes = [array for _, array in found]
    assert sizes == sorted(sizes) and all(a >= 2 * b for a, b in zip(sizes[1:], sizes, strict=False))


def test_the_cost_model_reckons_with_what_was_measured():
    estimated = ceilings.known_machine()
    assert estimated == this_machine()
    cores, lanes = estimated.cores, estimated.vector_bytes // 4
    levels = (
        ceilings.Level("L2", 1, 1 << 18, 1e11, 1e11, 1e11),
        ceilings.Level("L3", cores, 1 << 23, 5e10 * cores, 1e10, 1e10),
        ceilings.Level("memory", cores, 1 << 28, 3e10, 1e10, 1e10),
    )
    machine = ceilings.machine_key(("cc",), cores)
    save(Ceilings(machine, levels, (ceilings.Peak(cores, 8e9 * lanes * cores, 4e9 * lanes * cores),)))
    found = ceilings.known_machine()
    assert (found.rate, found.l2_bandwidth, found.l3_bandwidth, found.bandwidth) == (8e9, 1e11, 5e10, 3e10)
    assert found.bandwidth_of(cores) == 3e10  # of one core not measured, but it has its share of all
    save(Ceilings(machine, (*levels, ceilings.Level("memory", 1, 1 << 28, 2.5e10, 1e10, 1e10)), ()))
    assert ceilings.known_machine().bandwidth_of(1) == 2.5e10
    save(Ceilings(machine, levels[2:], ()))  # what was not measured stays an estimate
    found = ceilings.known_machine()
    assert (found.rate, found.l3_bandwidth) == (estimated.rate, estimated.l3_bandwidth)
    ceilings.stored_at().write_text("no such file")
    assert ceilings.known_machine() == estimated


def test_doctor_measures_once_and_shows_it_ever_after(monkeypatch):
    before = run("doctor")
    assert "--  limits" in before.stdout
    monkeypatch.setattr(ceilings, "_arrays", lambda machine, threads: [("L1", 8192), ("memory", 1 << 20)])
    measured = run("doctor", "--bench")
    assert measured.exit_code == 0, measured.output
    kept = load()
    (found,) = kept.values()
    assert {x.name for x in found.levels} == {"L1", "memory"}
    assert all(
        min(x.read, x.copy, x.triad) > 1e7 for x in found.levels
    )  # bytes per second, of anything today
    assert all(p.single > 1e8 and p.double > 1e8 for p in found.peaks)
    shown = run("doctor")
    if this_machine().cores > 1:  # seconds, of anything today
        assert 1e-9 < found.round_trip < 1e-3
        assert f"a cache line there and back in {found.round_trip * 1e9:.0f} ns" in shown.stdout
    assert re.search(r"ok  memory +read [\d.e+]+, copy [\d.e+]+, triad [\d.e+]+ GB/s", shown.stdout)
    content = json.loads(run("doctor", "--format", "json").stdout)
    assert content["ceilings"]["machine"] == found.machine


def test_from_core_to_core_takes_two_threads():
    assert ceilings.measure_limits(1 << 16, threads=1).round_trip == 0
    if this_machine().cores > 1:
        assert 1e-9 < ceilings.measure_limits(1 << 16, threads=2).round_trip < 1e-3


def test_files_of_before_lack_the_way_from_core_to_core():
    save(ONE)
    path = ceilings.stored_at()
    content = json.loads(path.read_text())
    assert content["machines"][ONE.machine].pop("round_trip") == 0
    path.write_text(json.dumps(content))
    assert load() == {ONE.machine: ONE}
    assert not any(label == "core to core" for label, _ in ONE.rows())


def test_a_compiler_that_fails_is_an_environment(monkeypatch):
    monkeypatch.setattr("mdh_lift.report.limits.find_compiler", lambda: "/bin/false")
    result = run("doctor", "--bench")
    assert result.exit_code == 4 and "MDH823" in result.stderr and "does not compile" in result.stderr
    assert load() == {}
