"""A trace that is simulated in blocks gives the runs that it gives as a whole."""

from dataclasses import fields, replace

import numpy as np
import pytest

from lab.ask.scenario import build, expand
from lab.containers.input import blocks
from lab.containers.input.workload import prepare
from lab.containers.metrics import METRICS
from lab.containers.run import runner, side_by_side
from lab.runs.store import RunStore
from tests.lab.sample_traces import usage_trace, whatif
from traces import parquet
from twin.containers.model import Series
from twin.containers.run import simulate
from twinbed import ScenarioError

POLICIES = ["escra", "autopilot:update_interval_s=7", "vpa:update_interval_s=11", "static", "requests-only"]
ROUGH = {"cpu_slack": 2.0**-9, "memory_slack": 2.0**-9, "lateness": 2.0**-8}


@pytest.fixture
def trace():
    """Two minutes of 5 s, in which containers join and leave, and memory falls now and then."""
    fine = usage_trace(24, 5)
    present = fine.present.copy()
    present[:9, 1] = present[13:, 2] = False
    memory = fine.memory_bytes + 3e8 * (np.arange(24)[:, None] % 7 > 3)
    return replace(
        fine,
        interval_s=5.0,
        present=present,
        cpu_cores=fine.cpu_cores * present,
        memory_bytes=memory * present,
    )


def in_blocks(monkeypatch, cells=500):
    """Simulate traces of more than a cell in blocks of so many."""
    monkeypatch.setattr(blocks, "WHOLE_CELLS", 1)
    monkeypatch.setattr(blocks, "BLOCK_CELLS", cells)


def scenario(**more):
    raw = {"name": "m", "trace": {"source": "x"}, "policies": POLICIES, "budget_factor": 3.0}
    return build(raw | more)


def simulated(spec, replay, record=True):
    kept = []

    def keep(series):
        arrays = {field.name: getattr(series, field.name) for field in fields(Series)}
        kept.append(Series(**{name: None if rows is None else rows.copy() for name, rows in arrays.items()}))

    policy = spec.policy.make()
    profile = replay.profile if policy.given.profile else None
    outcome = simulate(
        replay.workload, policy, runner.machine_of(spec), seed=np.random.SeedSequence(4),
        record=record, profile=profile, keep=keep if replay.workload.blocks else None,
    )  # fmt: skip
    return outcome, kept


@pytest.mark.parametrize("cells", [250, 1000, 3000])
@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_periods_in_blocks_equal_those_of_the_whole_to_the_bit(monkeypatch, trace, number, cells):
    asked = scenario()
    spec = expand(asked)[number]
    whole = prepare(asked, trace, np.random.SeedSequence(1))
    in_blocks(monkeypatch, cells)
    split = prepare(asked, trace, np.random.SeedSequence(1))
    assert split.workload.blocks is not None
    assert whole.workload.blocks is None
    for name in ("applications", "peak_cores", "peak_bytes", "threads", "names"):
        np.testing.assert_array_equal(getattr(split.workload, name), getattr(whole.workload, name), name)
    assert (split.notes, split.memory_known.tolist()) == (whole.notes, whole.memory_known.tolist())
    one, _ = simulated(spec, whole)
    other, kept = simulated(spec, split)
    assert len(kept) == -(-1200 // split.workload.blocks.block_rows)
    for name in Series.__slots__:
        wanted = getattr(one.series, name)
        if wanted is not None:
            parts = [getattr(series, name) for series in kept]
            np.testing.assert_array_equal(np.concatenate(parts), wanted, name)
    assert other.series is None
    for name in ("events", "limit_changes", "reports"):
        assert getattr(other, name) == getattr(one, name)
    for name in ("done_s", "arrived_s", "nr_periods", "nr_throttled"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
    unrecorded = [simulated(spec, replay, record=False)[0].reserved_cores for replay in (whole, split)]
    np.testing.assert_array_equal(*unrecorded)


def assert_alike(run, other):
    assert run.id == other.id
    for metric in METRICS:
        rough = next((off for key, off in ROUGH.items() if metric.key.startswith(key)), 1e-12)
        value = pytest.approx(
            run.metrics[metric.key], rel=rough, abs=1e-3 if rough > 1e-9 else 0, nan_ok=True
        )
        assert other.metrics[metric.key] == value, metric.key
    for key in ("workload", "notes", "refinement", "reports", "given"):
        assert run.manifest[key] == other.manifest[key], key
    for table in ("periods", "events"):
        assert run.frame(table).equals(other.frame(table)), table


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("interval_s", [None, 10.0, 0.1])
def test_runs_in_blocks_are_those_of_the_whole(monkeypatch, tmp_path, trace, interval_s, threads):
    path = tmp_path / "trace.parquet"
    parquet.write(trace, path)
    own = [] if interval_s is None else [f"series_interval_s={interval_s}"]
    own.append("budget_factor=3")
    monkeypatch.setattr(side_by_side, "_threads", lambda: threads)
    whole = whatif(path, POLICIES, store=RunStore(tmp_path / "whole"), overrides=own)
    in_blocks(monkeypatch)
    split = whatif(path, POLICIES, store=RunStore(tmp_path / "split"), overrides=own)
    for run, other in zip(whole, split, strict=True):
        assert_alike(run, other)


@pytest.mark.parametrize(
    ("limit", "more", "cure"),
    [
        ("MOST_CONTAINERS", {}, "of more than 4 containers at most 10; select fewer containers"),
        (
            "MOST_BLOCK_CELLS",
            {},
            "4 in one interval of the trace; select fewer containers or a longer period",
        ),
        ("MOST_READ_CELLS", {}, "4 rows of the stored series; give a longer series_interval_s"),
        ("WHOLE_CELLS", {"hpa": {"replicas": 1}}, "with hpa or a job at most 10; select fewer containers"),
    ],
)
def test_what_is_too_large_is_refused_with_the_limit_and_the_cure(monkeypatch, trace, limit, more, cure):
    monkeypatch.setattr(blocks, "WHOLE_CELLS", 4)
    monkeypatch.setattr(blocks, limit, 4)
    monkeypatch.setattr(blocks, "MAX_CELLS", 10)
    with pytest.raises(ScenarioError, match=f"m: 1,200 periods × 5 containers are too many: {cure}"):
        prepare(scenario(**more), trace, np.random.SeedSequence(1))


def test_a_row_of_the_series_that_is_longer_than_a_block_is_refused(monkeypatch, trace):
    in_blocks(monkeypatch)
    monkeypatch.setattr(blocks, "MAX_CELLS", 10)
    monkeypatch.setattr(blocks, "MOST_BLOCK_CELLS", 500)
    with pytest.raises(ScenarioError, match="let series_interval_s be 5 or divide it"):
        prepare(scenario(series_interval_s=60.0), trace, np.random.SeedSequence(1))


def test_what_does_not_fit_into_blocks_is_refined_as_a_whole_as_far_as_that_fits(monkeypatch, trace):
    in_blocks(monkeypatch)
    monkeypatch.setattr(blocks, "MOST_CONTAINERS", 2)
    assert prepare(scenario(), trace, np.random.SeedSequence(1)).workload.blocks is None


def test_the_testbed_gets_the_whole(monkeypatch, trace):
    whole = prepare(scenario(), trace, np.random.SeedSequence(1)).workload
    in_blocks(monkeypatch)
    made = blocks.whole(prepare(scenario(), trace, np.random.SeedSequence(1)).workload)
    for name in ("demand_cores", "memory_bytes", "present"):
        np.testing.assert_array_equal(getattr(made, name), getattr(whole, name))
    monkeypatch.setattr(blocks, "MAX_CELLS", 10)
    with pytest.raises(ScenarioError, match="6,000 container-periods are more than 10"):
        blocks.whole(prepare(scenario(), trace, np.random.SeedSequence(1)).workload)


@pytest.mark.parametrize("interval_s", [1.0, 0.7, 33.0])
def test_peaks_in_blocks_are_those_of_the_whole(monkeypatch, trace, interval_s):
    asked = scenario(profile={"interval_s": interval_s})
    whole = prepare(asked, trace, np.random.SeedSequence(1)).workload
    in_blocks(monkeypatch)
    split = prepare(asked, trace, np.random.SeedSequence(1)).workload
    np.testing.assert_allclose(split.peak_cores, whole.peak_cores, rtol=1e-12)
