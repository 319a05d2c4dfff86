"""What an apply exports while it watches, and after it took everything back."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from lab.containers.apply.carrying import Source, Watched
from lab.containers.apply.conditions import Figures, parse
from lab.containers.apply.journal import Journal
from testbed.containers.exporting.reading import Reader
from testbed.containers.exporting.table import of
from tests.lab.containers.apply.apply_world import World, advice, row
from tests.lab.containers.apply.test_carrying import Clock, count

Seen = dict[tuple[str, str], float]


def seen(figures: Figures) -> Seen:
    """Returns what Prometheus would see, by name without the prefix, and the label's value."""
    registry = CollectorRegistry()
    registry.register(Reader(figures.read))
    return {
        (sample.name.removeprefix("twinbed_apply_"), "".join(sample.labels.values())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_an_apply_exports_its_changes_its_watch_and_what_happened(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    meanwhile: list[Seen] = []
    events = {2: lambda: meanwhile.append(seen(applier.figures)), 3: lambda: count(world, "a", 107, 50)}
    applier = world.applier(Clock(events))
    watched = Watched(0.5, 10.0, (parse("throttled > 5%"),))
    with Journal(world.state).held():
        plan = world.plan(advice(row("a"), row("b")))
        assert applier.apply(plan, Source("advice.json", "f" * 64), watched) is not None
    (early,), late = meanwhile, seen(applier.figures)
    assert early["limits_set_total", ""] == 2
    assert early["watch_ratio", "canaries"] == pytest.approx(0.1)
    assert early["aborts_total", ""] == 0
    assert late["aborts_total", ""] == 1
    assert late["limits_put_back_total", ""] == 2
    assert late["container_periods_total", "/pods/a"] == 100
    assert late["container_throttled_periods_total", "/pods/a"] == 47
    assert {f"twinbed_apply_{name}" for name, _ in late} == {metric.name for metric in of("apply")}
