"""The page of stalls, from measurements that it holds."""

from dataclasses import replace

from control.profiler.stalls import Run, Timing
from studies.cloud import stalls
from studies.harness import Asked
from tests.made_up_jobs import PROFILED


def test_the_page_is_made_of_what_was_measured_and_measures_nothing_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(stalls, "again", lambda: None)
    store = tmp_path / "measured.jsonl"
    store.write_bytes(stalls._ROW.dump_json(PROFILED) + b"\n")
    assert stalls.read(store) == [PROFILED]
    stalls.make(Asked("stalls", store=store, out=tmp_path, page_only=True))
    text = (tmp_path / "stalls.md").read_text()
    assert "| a | network |  | 40.00 | 400.0% | 0.00 | 9.00 | 100.0% |" in text
    assert "| a | RUN1n | 50.00 | 18.00 | -64.0% |" in text
    assert "| K4, interconnect | up to 90% of the time | up to 20% | up to 11% |" in text
    assert "fix first: interconnect 0, CPU 0, disk 0, network 1; no stall beyond noise 0." in text


def test_the_dearer_type_is_named_where_it_is_slower_beyond_noise():
    pairs = stalls.dear_pairs(0.1)
    assert pairs
    for _, dear, cheap in pairs:
        assert dear.price_usd_h > cheap.price_usd_h
        assert dear.epoch_s > 1.1 * cheap.epoch_s
    assert len(stalls.dear_pairs(0.5)) < len(pairs)


def test_jobs_that_are_held_are_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(stalls, "again", lambda: None)
    asked = []

    def measure(job, _listings, _workers, *, directory, told):
        asked.append(job.name)
        told("RUN0")
        return [replace(PROFILED, job=job.name)]

    monkeypatch.setattr(stalls, "measure", measure)
    wanted = Asked("stalls", store=tmp_path / "m.jsonl", out=tmp_path, only=["text_bag", "text_lstm"])
    stalls.make(wanted)
    stalls.make(wanted)
    assert asked == ["text_bag", "text_lstm"]
    assert [item.timings[Run.ALONE] for item in stalls.read(wanted.store)] == [Timing((8.0, 8.0), 100)] * 2
