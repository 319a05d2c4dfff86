"""The campaign of docs/results/scale.md in small, and its page."""

from __future__ import annotations

import os
import shutil

import pytest

from lab.runs.code import code_sha256
from studies.harness import Asked
from studies.scale import page as pages
from studies.scale import places
from studies.scale.overhead import Timed
from studies.scale.page import is_right, measured, text

COUNTS = ("runs", "there", "rows", "identical")
RIGHT = dict.fromkeys(COUNTS, 9) | dict.fromkeys(("missing", "unasked", "rows twice"), 0)
RIGHT |= {"faults": ["worker 0 killed with -9"], "seconds": 1.0}


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.skipif(
    not (shutil.which("ip") and shutil.which("nft")), reason="iproute2 or nftables is missing"
)
def test_every_run_is_there_exactly_once_whatever_dies():
    for package in ("distributed", "s3fs", "moto"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    found = measured(range(3, 43), given_up_s=12.0)
    assert is_right(found), found
    faults = "\n".join(found["faults"])
    assert "worker 0 killed" in faults
    assert "worker 1 killed" in faults
    assert "exit code 2: twinbed: " in faults
    assert "the connection to the scheduler is lost; finished runs stay stored" in faults
    assert "silent" in faults


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and iproute2"
)
def test_an_interrupt_between_two_steps_leaves_no_namespace(monkeypatch):
    ip = places._ip

    def interrupted(*arguments: str) -> None:
        ip(*arguments)
        if arguments[:2] == ("netns", "add"):
            raise KeyboardInterrupt

    monkeypatch.setattr(places, "_ip", interrupted)
    with pytest.raises(KeyboardInterrupt), places.places(1):
        pass
    assert not list(places._NAMESPACES.glob(f"tb-s{os.getpid() % 100000}-*"))


@pytest.mark.parametrize(
    "wrong", [{"there": 8}, {"missing": 1}, {"unasked": 1}, {"rows": 10}, {"rows twice": 1}, {"identical": 8}]
)
def test_one_run_too_few_or_too_many_is_no_success(wrong):
    assert is_right(RIGHT)
    assert not is_right(RIGHT | wrong)


def test_efficiency_and_overhead_are_of_the_work():
    # 20 units of 1 s on 2 workers: 10 s of work, 12.5 s taken.
    row = Timed("dask", 2, 20, 1.0, 12.5)
    assert row.efficiency == 0.8
    assert row.overhead_s == 0.125


def test_the_page_says_when_it_is_not_right():
    rows = [Timed("dask", 2, 20, 1.0, 12.5), Timed("dask", 2, 20, 0.0, 0.2)]
    page = text(RIGHT, rows, 9)
    assert "Every run was stored exactly once, through all faults below: 9 of 9" in page
    assert "A unit without work cost 10.0 ms." in page
    assert "NOT every run" in text(RIGHT | {"there": 8}, rows, 9)
    assert "The aim was 10 runs; the others are not made yet" in text(RIGHT, rows, 10)


def test_a_campaign_of_this_code_is_kept(tmp_path, monkeypatch):
    asked = []

    def one(seeds):
        asked.append(seeds)
        return RIGHT | dict.fromkeys(COUNTS, len(seeds))

    monkeypatch.setattr(pages, "measured", one)
    monkeypatch.setattr(pages, "all_timed", lambda: [Timed("dask", 2, 2, s, 1.0) for s in (0.0, 1.0)])
    there = Asked(store=tmp_path / "kept", out=tmp_path, repeats=4)
    assert pages.make(there) == pages.make(there) == 0
    assert pages.make(Asked(store=there.store, out=tmp_path, repeats=10)) == 0
    assert asked == [range(4), range(10)]
    assert "10 of 10" in (tmp_path / "scale.md").read_text()
    assert pages.make(Asked(store=there.store, out=tmp_path, repeats=20, page_only=True)) == 1
    assert "The aim was 20 runs" in (tmp_path / "scale.md").read_text()
    monkeypatch.setattr(pages, "code_sha256", lambda: code_sha256() + "x")
    assert pages.kept(there.store) is None
