"""The page about goodput, on the data where they are."""

from __future__ import annotations

from studies.cloud import goodput
from studies.harness import Asked


def test_the_page_counts_its_own_verdicts_and_shows_what_it_misses(public_data, tmp_path) -> None:
    folder = public_data("pollux_t4")
    assert goodput.make(Asked(name="goodput", data=folder.parent, out=tmp_path)) == 0
    text = (tmp_path / "goodput.md").read_text()
    near, far = text.count("| yes |"), text.count("| no |")
    assert near + far == 8
    assert f"in {near} of 8 cases" in text
    read = goodput.read(folder, "yolov3")
    assert read.base == 8
    assert 500 < read.noise < 600  # as the gradients say that the source measured
