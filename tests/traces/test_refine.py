from __future__ import annotations

import tomllib
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traces.trace_strategies import same, usage_traces
from traces import load as door
from traces import parquet
from traces import refine as module
from traces.load import RECORDED, shipped
from traces.refine import DEFAULT, FIT_COARSE_S, Burstiness, Bursts, aggregate, fit, fit_all, refine
from traces.schema import UsageTrace, validate
from twinbed import TraceError

parts = st.sampled_from([1, 2, 7, 30])
burstiness = st.builds(
    Burstiness, cv=st.sampled_from([0.0, 0.3, 1.0, 5.0]), correlation_s=st.floats(0.0, 20.0)
)


def seed(number: int = 1) -> np.random.SeedSequence:
    return np.random.SeedSequence(number)


def steady(rows: int, columns: int, interval_s: float, cores: float = 0.5) -> UsageTrace:
    cpu = np.full((rows, columns), cores)
    names = tuple(f"c{i}" for i in range(columns))
    return UsageTrace(names, ("app",) * columns, 0.0, interval_s, cpu, cpu * 1e8, cpu >= 0)


def blocks(values: np.ndarray, count: int) -> np.ndarray:
    return values.reshape(-1, count, values.shape[1])


@given(usage_traces(), parts, burstiness, st.sampled_from([None, 0.05, 1.0, 8.0]))
@settings(max_examples=80)
def test_every_coarse_mean_is_kept_and_the_result_is_a_valid_trace(
    trace: UsageTrace, count: int, bursts: Burstiness, max_cores: float | None
) -> None:
    fine = refine(trace, trace.interval_s / count, seed(), bursts, max_cores)
    validate(fine, "refined")
    assert np.allclose(blocks(fine.cpu_cores, count).mean(axis=1), trace.cpu_cores, rtol=1e-12, atol=0)
    if max_cores is not None:
        ceiling = np.maximum(trace.cpu_cores, max_cores)
        assert (blocks(fine.cpu_cores, count) <= ceiling[:, None] * (1 + 1e-12)).all()


@given(st.integers(1, 5), st.integers(1, 300), st.floats(0.1, 5.0), st.sampled_from([0.0, 0.05, 2.0]))
@settings(max_examples=30)
def test_bursts_are_numpys_numbers_through_scipys_filter_to_the_bit(columns, count, cv, correlation_s):
    mean = np.full((3, columns), 0.5)
    drawn = Bursts(columns, count, 0.1, seed(), Burstiness(cv, correlation_s), np.inf).draw(mean)
    random = np.random.Generator(np.random.PCG64(seed()))
    sigma, keep = sqrt(log(1 + cv**2)), exp(-0.1 / correlation_s) if correlation_s else 0.0
    before = keep * random.standard_normal((1, columns))
    shocks = random.standard_normal((3 * count, columns))
    noise, _ = scipy.signal.lfilter([sigma * sqrt(1 - keep**2)], [1.0, -keep], shocks, axis=0, zi=before)
    block = np.exp(noise).reshape(3, count, columns)
    block *= (mean / block.mean(axis=1))[:, None]
    assert np.array_equal(drawn, block.reshape(-1, columns))


@given(usage_traces(), parts, burstiness)
@settings(max_examples=40)
def test_memory_stays_between_the_samples_and_network_totals_are_kept(
    trace: UsageTrace, count: int, bursts: Burstiness
) -> None:
    fine = refine(trace, trace.interval_s / count, seed(), bursts)
    before = np.vstack([trace.memory_bytes[:1], trace.memory_bytes[:-1]])
    came = ~np.vstack([trace.present[:1], trace.present[:-1]])
    before = np.where(came, trace.memory_bytes, before)
    memory = blocks(fine.memory_bytes, count)
    low, high = np.minimum(before, trace.memory_bytes), np.maximum(before, trace.memory_bytes)
    inside = (memory >= low[:, None]) & (memory <= high[:, None])
    assert np.where(trace.present[:, None], inside, memory == 0).all()
    assert (memory[:, -1] == trace.memory_bytes).all()
    for name in ("rx_bytes", "tx_bytes"):
        coarse = getattr(trace, name)
        if coarse is not None:
            assert np.allclose(blocks(getattr(fine, name), count).sum(axis=1), coarse, rtol=1e-9)


@given(usage_traces(), burstiness)
@settings(max_examples=30)
def test_the_same_seed_gives_the_same_bits(trace: UsageTrace, bursts: Burstiness) -> None:
    interval = trace.interval_s / 5
    assert same(refine(trace, interval, seed(9), bursts), refine(trace, interval, seed(9), bursts))


def test_another_seed_gives_other_bursts() -> None:
    trace = steady(10, 2, 1.0)
    one, other = (refine(trace, 0.1, seed(n), Burstiness(1.0, 0.3)) for n in (1, 2))
    assert not np.array_equal(one.cpu_cores, other.cpu_cores)


def test_the_chunk_size_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = steady(40, 3, 1.0)
    whole = refine(trace, 0.1, seed(), Burstiness(1.0, 0.3), max_cores=2.0)
    monkeypatch.setattr(module, "CHUNK_CELLS", 100)
    assert same(refine(trace, 0.1, seed(), Burstiness(1.0, 0.3), max_cores=2.0), whole)


def test_zero_stays_zero_and_absent_stays_absent() -> None:
    trace = steady(6, 2, 1.0)
    trace.cpu_cores[2:4, 0] = 0.0
    trace.present[4:, 1] = False
    trace.cpu_cores[4:, 1] = trace.memory_bytes[4:, 1] = 0.0
    fine = refine(trace, 0.1, seed(), Burstiness(2.0, 1.0))
    assert (fine.cpu_cores[20:40, 0] == 0).all()
    assert not fine.present[40:, 1].any()
    assert (fine.cpu_cores[40:, 1] == 0).all()


def test_the_result_says_what_was_done_to_it() -> None:
    trace = replace(steady(3, 2, 60.0, cores=3.0), throttled_s=np.zeros((3, 2)), rx_bytes=np.ones((3, 2)))
    fine = refine(trace, 0.1, seed(), Burstiness(0.75, 0.25), max_cores=2.0)
    assert fine.notes == (
        "Refined from 60 s to 0.1 s intervals by a random model (log-normal bursts, coefficient of variation "
        "0.75, correlation time 0.25 s, at most 2 cores); the mean CPU use of every interval is kept, "
        "memory is interpolated, network follows CPU use, throttled time is left out; flat: 6 intervals with "
        "a mean above 2 cores.",
    )
    assert fine.throttled_s is None
    assert (fine.cpu_cores == 3.0).all()


def test_a_trace_already_at_the_interval_is_left_alone() -> None:
    trace = steady(5, 2, 0.1)
    assert refine(trace, 0.1, seed()) is trace


@pytest.mark.parametrize(
    ("interval_s", "words"),
    [
        (0.3, "1 s is not a whole number of 0.3 s"),
        (0.8, "1 s is not a whole number of 0.8 s"),
        (1.2, "is not a whole number of"),
        (2.5, "2.5 s is not a whole number of 1 s"),
        (0.0, "expected a number above zero"),
        (float("nan"), "expected a number above zero"),
        (1e-7, "more than 50000000 cells; select fewer containers"),
        (30.0, "shorter than an interval of 30 s"),
    ],
)
def test_an_impossible_interval_is_refused(interval_s: float, words: str) -> None:
    with pytest.raises(TraceError) as error:
        refine(steady(20, 1, 1.0), interval_s, seed())
    assert words in str(error.value)


@pytest.mark.parametrize("values", [(-0.1, 1.0), (float("nan"), 1.0), (1.0, -1.0), (1e9, 1.0)])
def test_impossible_burstiness_is_refused(values: tuple[float, float]) -> None:
    with pytest.raises(TraceError, match="burstiness"):
        Burstiness(*values)


@given(usage_traces(max_rows=30), st.sampled_from([2, 3, 10]))
@settings(max_examples=40)
def test_aggregation_conserves_work_and_bytes(trace: UsageTrace, count: int) -> None:
    rows = trace.shape[0] // count
    if rows == 0:
        with pytest.raises(TraceError, match="shorter than an interval"):
            aggregate(trace, trace.interval_s * count)
        return
    coarse = aggregate(trace, trace.interval_s * count)
    validate(coarse, "aggregated")
    full = rows * count
    work = coarse.cpu_cores.sum(axis=0) * coarse.interval_s
    assert np.allclose(work, trace.cpu_cores[:full].sum(axis=0) * trace.interval_s)
    if trace.rx_bytes is not None and coarse.rx_bytes is not None:
        assert np.allclose(coarse.rx_bytes.sum(axis=0), trace.rx_bytes[:full].sum(axis=0))
    assert len(coarse.notes) == len(trace.notes) + 1


def test_a_trace_finer_than_the_period_is_added_up() -> None:
    trace = steady(25, 1, 0.01)
    trace.memory_bytes[:, 0] = np.arange(25)
    coarse = refine(trace, 0.1, seed())
    assert coarse.cpu_cores[:, 0].tolist() == pytest.approx([0.5, 0.5])
    assert coarse.memory_bytes[:, 0].tolist() == [9, 19]
    assert coarse.notes == (
        "Added up from 0.01 s to 0.1 s intervals; 5 of 25 at the end left out, too few for another one.",
    )


@pytest.mark.parametrize("bursts", [Burstiness(0.3, 0.0), Burstiness(0.6, 0.3), Burstiness(1.5, 0.5)])
def test_the_fit_finds_the_parameters_of_its_own_model(bursts: Burstiness) -> None:
    fine = refine(steady(60, 20, 20.0), 0.1, seed(), bursts)
    fitted = fit(fine, 20.0)
    assert fitted.cv == pytest.approx(bursts.cv, rel=0.12)
    assert fitted.correlation_s == pytest.approx(bursts.correlation_s, rel=0.15, abs=0.02)


def test_a_flat_trace_has_no_burstiness() -> None:
    assert fit(steady(200, 2, 0.1), 10.0) == Burstiness(0.0, 0.0)


def test_a_fit_needs_use_and_one_interval() -> None:
    with pytest.raises(TraceError, match="without CPU use"):
        fit(steady(200, 2, 0.1, cores=0.0), 10.0)
    with pytest.raises(TraceError, match="cannot be fitted to 20 intervals"):
        fit(steady(20, 2, 0.1), 10.0)
    with pytest.raises(TraceError, match="traces of one interval"):
        fit_all([steady(200, 2, 0.1), steady(200, 2, 0.2)], 10.0)


def test_the_printed_fit_is_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(door, "RECORDED", tmp_path)
    monkeypatch.setattr(module, "RECORDED", tmp_path)
    with pytest.raises(TraceError, match="no recordings"):
        module.print_fit()
    for name, cv in (("calm", 0.2), ("wild", 1.0)):
        parquet.write(
            refine(steady(6, 2, 20.0), 0.1, seed(), Burstiness(cv, 0.2)), tmp_path / f"{name}.parquet"
        )
    module.print_fit()
    printed = tomllib.loads(capsys.readouterr().out)
    assert list(printed) == ["default", "calm", "wild"]
    assert printed["calm"]["cv"] < printed["default"]["cv"] < printed["wild"]["cv"]


def test_the_shipped_default_is_what_the_shipped_recordings_give() -> None:
    if not shipped():
        pytest.skip("no recordings are shipped yet")
    written = tomllib.loads(Path(module.__file__).with_name("burstiness.toml").read_text())
    traces = {name: parquet.read(RECORDED / f"{name}.parquet") for name in shipped()}
    refit = {"default": fit_all(list(traces.values()), FIT_COARSE_S)}
    refit |= {name: fit(trace, FIT_COARSE_S) for name, trace in traces.items()}
    assert written.keys() == refit.keys()
    for name, fitted in refit.items():
        assert written[name]["cv"] == pytest.approx(fitted.cv, abs=1e-3)
        assert written[name]["correlation_s"] == pytest.approx(fitted.correlation_s, abs=1e-3)
    assert Burstiness(**written["default"]) == DEFAULT
