"""The conditions that --abort-if accepts, and when they are met."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from lab.containers.apply.carrying import Source, Watched
from lab.containers.apply.conditions import Condition, Figures, Happened, parse, unjudged
from lab.containers.apply.journal import Journal
from lab.containers.apply.watching import Watch
from testbed.containers.attach.limits import Counters
from testbed.containers.exporting.reading import Reader
from testbed.containers.exporting.table import of
from testbed.containers.ports import GroupGoneError
from tests.lab.containers.apply.apply_world import World, advice, row
from tests.lab.containers.apply.test_carrying import Clock, count
from twinbed import ScenarioError


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("throttled > 5%", Condition("throttled", 0.05)),
        (" throttled>0.5% ", Condition("throttled", 0.005)),
        ("oom > 0", Condition("oom", 0)),
        ("restarts > 2", Condition("restarts", 2)),
    ],
)
def test_a_condition_is_read(text, condition):
    assert parse(text) == condition


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("throttled > 5", "throttled is compared with a percentage"),
        ("throttled > 101%", "throttled is compared with a percentage"),
        ("oom > 1%", "oom is compared with a number without %"),
        ("oom < 1", "expected 'throttled > 5%'"),
        ("latency > 1", "expected 'throttled > 5%'"),
        ("oom > 1; reboot", "expected 'throttled > 5%'"),
        ("oom > 1e3", "expected 'throttled > 5%'"),
        ("", "expected 'throttled > 5%'"),
    ],
)
def test_anything_else_is_refused_in_one_line(text, said):
    with pytest.raises(ScenarioError, match=said) as raised:
        parse(text)
    assert "\n" not in str(raised.value)


@given(st.text())
def test_no_text_does_worse_than_being_refused(text):
    said = ""
    try:
        parse(text)
    except ScenarioError as error:
        said = str(error)
    assert said.isprintable()


def test_a_throttled_share_counts_after_five_seconds_or_at_the_end():
    condition = parse("throttled > 5%")
    few = Happened(periods=10, throttled=9, oom=0, restarts=0)
    assert condition.met(few, last=False) is None
    assert condition.met(few, last=True) == "throttled in 90.0 % of 10 periods, more than 5 %"
    assert condition.met(Happened(0, 0, 0, 0), last=True) is None
    assert condition.met(Happened(1000, 50, 0, 0), last=True) is None


Seen = dict[tuple[str, str], float]


def seen(figures: Figures) -> Seen:
    """Return what Prometheus would see, by name without the prefix, and the label's value."""
    registry = CollectorRegistry()
    registry.register(Reader(figures.read))
    return {
        (sample.name.removeprefix("twinbed_apply_"), "".join(sample.labels.values())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_an_apply_exports_its_changes_its_watch_and_what_happened(tmp_path):
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


GONE = GroupGoneError("docker:web: does not run")


class Places:
    """A target with one container, whose counters are those that a test gave, or which is gone."""

    def __init__(self, now: Counters | None) -> None:
        self.now = now

    def target(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(counters=self.counters)

    def counters(self) -> Counters:
        if self.now is None:
            raise GONE
        return self.now


def test_limits_are_set_again_until_a_restarted_container_takes_them():
    places = Places(Counters(10, 1, 0, 0, "first"))
    answers, asked = [GONE, None], []

    def again(name: str) -> None:
        asked.append(name)
        if (answer := answers.pop(0)) is not None:
            raise answer

    happened: dict[str, Happened] = {}
    watch = Watch(places, (parse("restarts > 1"),), again, happened)
    watch.add(["web"])
    places.now = Counters(3, 2, 0, 0, "second")
    for second in range(4):
        assert watch.look(float(second), last=False) is None
    assert asked == ["web", "web"]
    assert happened["web"] == Happened(periods=3, throttled=2, oom=0, restarts=1)


def test_a_container_that_restarts_as_its_watch_begins_is_waited_for():
    places, asked = Places(None), []
    watch = Watch(places, (), asked.append, {})
    watch.add(["web"])
    assert watch.look(0.0, last=False) is None
    places.now = Counters(5, 0, 0, 7, "second")
    assert watch.look(14.0, last=False) is None
    assert asked == ["web"]
    places.now = None
    assert watch.look(20.0, last=False) is None
    assert watch.look(35.0, last=False) == "web is gone"


def test_containers_without_periods_are_named_where_throttling_was_to_be_judged():
    happened = {"a": Happened(0, 0, 0, 0), "b": Happened(20, 0, 0, 0)}
    (note,) = unjudged([parse("oom > 0"), parse("throttled > 5%")], happened)
    assert note.startswith("Not judged for throttling")
    assert note.endswith(": a")
    assert unjudged([parse("oom > 0")], happened) == []
    assert unjudged([parse("throttled > 5%")], {"b": happened["b"]}) == []
