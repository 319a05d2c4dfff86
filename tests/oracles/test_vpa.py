"""The VPA against Kubernetes' own tests, and against what its recommender computes."""

import numpy as np
import pytest

from control.allocator import vpa_recommender
from control.allocator.histogram import DecayingHistograms, exponential, from_starts
from control.allocator.roster import Column, Roster
from control.allocator.vpa import drift, outside, refused, worth_updating
from control.allocator.vpa_recommender import (
    Estimate,
    Recommender,
    estimate,
    history_length,
    with_confidence,
    with_margin,
)
from control.allocator.vpa_resize import Step, next_step, worth_another_try
from control.allocator.vpa_settings import VpaSettings
from tests.control.allocator.fleets import application, join
from tests.oracles.vectors import ABSENT, ROOT, rows, vectors

DIFFERS = {
    "estimators/minimum_split_over_*": "every container is a pod of its own",
    "priority/two_containers_*": "every container is a pod of its own",
    "histograms/merge": "each container keeps its own histogram: nothing is merged",
    "histograms/checkpoint_*": "a run ends with its allocator: nothing is saved",
    "in_place/resize_[13]": "no controller counts replicas: one that does not run keeps no other back",
}
"""Patterns of file/vector, and why ours differs on purpose (docs/decisions/0033-vpa-as-kubernetes.md)."""

EPSILON = 1e-15
"""Weight below which a bucket is empty in the histograms' tests (weightEpsilon in histogram_test.go)."""

FIRST = np.array([0])
RESOURCES = ("cpu_cores", "memory_bytes")


@pytest.mark.skipif(not ROOT.is_dir(), reason=ABSENT)
def test_every_vector_has_a_test_or_a_reason_not_to():
    files = {path.stem for path in (ROOT / "vpa").glob("*.json")}
    tested = "aggregation buckets defaults estimators histograms in_place kubelet priority recommendations"
    assert files == {*tested.split(), "updates"}
    for pattern in DIFFERS:
        file = f"vpa/{pattern.partition('/')[0]}"
        assert len(rows(file, [pattern])) < len(rows(file)), f"{pattern} names no vector"


@vectors("vpa/defaults")
def test_defaults_are_those_of_kubernetes(vector):
    if vector["id"] == "min_sample_weight_cores":
        assert vector["value"] == vpa_recommender.SAMPLE_WEIGHT
    else:
        assert getattr(VpaSettings(), vector["id"]) == vector["value"]


# --- histograms ------------------------------------------------------------------------------------


def buckets(options):
    if "exponential" in options:
        shape = options["exponential"]
        return exponential(shape["first"], shape["ratio"], shape["largest"])
    shape = options["linear"]
    return from_starts(np.arange(np.ceil(shape["largest"] / shape["width"]) + 1) * shape["width"])


def starts(of):
    return np.append(0.0, of.ends[:-1])


@vectors("vpa/buckets")
def test_buckets_are_those_of_kubernetes(vector):
    made = buckets(vector["options"])
    assert made.count == vector["count"]
    assert [[at, starts(made)[at]] for at, _ in vector["starts"]] == vector["starts"]
    assert made.find(np.array([value for value, _ in vector["find"]])).tolist() == [
        bucket for _, bucket in vector["find"]
    ]


@vectors("vpa/histograms", DIFFERS)
def test_percentiles_are_those_of_kubernetes(vector):
    of = buckets(vector["options"])
    column = Column(1, 0.0, np.float32, (of.count,))
    histogram = DecayingHistograms(of, vector["half_life_s"] or 1e12, column, EPSILON)
    for kind, *values in vector["steps"]:
        if kind == "empty":
            assert np.isnan(histogram.percentiles(FIRST, (0.5,))[0, 0]) == values[0]
        else:
            value, weight, at_s = values
            getattr(histogram, kind)(FIRST, np.array([value]), weight, at_s)
    for fraction, expected in vector["percentiles"]:
        # An empty histogram has no percentile here (NaN); Kubernetes' has 0.
        answer = np.nan_to_num(histogram.percentiles(FIRST, (fraction,))[0, 0])
        assert answer == pytest.approx(expected, rel=vector["relative_tolerance"])


# --- the recommender -------------------------------------------------------------------------------


class Samples:
    """Stands for a histogram: what was added and not subtracted."""

    def __init__(self):
        self.held = []

    def add(self, slots, values, weights, at_s):
        weights, at_s = np.broadcast_to(weights, len(slots)), np.broadcast_to(at_s, len(slots))
        self.held += [list(row) for row in zip(values.tolist(), weights, at_s, strict=True)]

    def subtract(self, slots, values, weights, at_s):
        taken, self.held = self.held, []
        self.add(slots, values, weights, at_s)
        left = [row for row in taken if row not in self.held]
        assert len(left) == len(taken) - len(self.held), "something is subtracted that was not added"
        self.held = left


def recommender(**settings):
    roster = Roster([application()])
    made = Recommender(roster, VpaSettings(**settings))
    roster.join(join([0]))
    return made


@vectors("vpa/aggregation")
def test_histograms_hold_the_samples_of_kubernetes(vector):
    made = recommender(memory_aggregation_interval_s=vector["interval_s"])
    made.cpu, made.memory = Samples(), Samples()
    for event in vector["events"]:
        at_s = event["at_s"]
        if "cpu_cores" in event:
            made.observe_cpu(FIRST, np.array([event["cpu_cores"]]), at_s)
        if "memory_bytes" in event:
            made.observe_memory(FIRST, np.array([float(event["memory_bytes"])]), at_s)
        if "oom_request_bytes" in event:
            made.observe_oom(FIRST, np.array([float(event["oom_request_bytes"])]), at_s)
    expected = vector["expected"]
    assert made.cpu.held == expected.get("cpu_samples", [])
    assert made.memory.held == expected.get("memory_samples", [])


@vectors("vpa/estimators", DIFFERS)
def test_estimators_compute_what_those_of_kubernetes_do(vector):
    base = {name: np.array([value]) for name, value in vector.get("base", {}).items()}
    if vector["step"] == "confidence":
        times = np.array(vector["samples_at_s"])
        length = np.zeros(1)
        if times.size:
            length = history_length(times[:1], times[-1:], np.array([len(times)]), vector["interval_s"])
            assert length == pytest.approx(vector["expected"]["confidence"])
        scaling = vector["multiplier"], vector["exponent"]
        results = {name: with_confidence(value, length, scaling)[0] for name, value in base.items()}
    elif vector["step"] == "percentile":
        results = {name: percentile(vector, name)[0, 0] for name in vector["samples"]}
    elif vector["step"] == "margin":
        results = {name: with_margin(value, vector["fraction"])[0] for name, value in base.items()}
    else:
        assert vector["step"] == "minimum"
        least = np.array([vector["least"][name] for name in RESOURCES])
        percentiles = np.array([[base[name] for name in RESOURCES]] * 3)
        made = estimate(percentiles, np.ones(1), 0.0, least)
        results = dict(zip(RESOURCES, made.target[:, 0], strict=True))
    for name, result in results.items():
        wanted = vector["expected"][name]
        expected = np.inf if isinstance(wanted, str) else wanted  # "as much as can be told"
        assert result == pytest.approx(expected, rel=vector["relative_tolerance"])


def percentile(vector, name):
    histogram = getattr(recommender(), name.partition("_")[0])
    for value, weight, at_s in vector["samples"][name]:
        histogram.add(FIRST, np.array([value]), weight, at_s)
    return histogram.percentiles(FIRST, (vector["fraction"][name],))


LARGEST = 1e14
"""Kubernetes' largest amount, in millicores or bytes: what is more is that much."""


@vectors("vpa/recommendations")
def test_recommendations_are_those_of_kubernetes(vector):
    made = recommender()
    for at_s, kind, value in sorted(events(vector), key=lambda event: event[0]):
        if kind == "expected":
            compare(made.recommend(FIRST), value)
        else:
            getattr(made, f"observe_{kind}")(FIRST, np.array([value]), at_s)


def events(vector):
    """Yields (seconds, kind, value): samples, and after them what is recommended then."""
    for part in vector["segments"]:
        for index, (cores, memory) in enumerate(
            zip(part["cpu_millicores"], part["memory_bytes"], strict=True)
        ):
            at_s = part["from_s"] + index * part["interval_s"]
            yield at_s, "cpu", cores / 1000.0
            yield at_s, "memory", float(memory)
    for oom in vector["ooms"]:
        (request,) = (value for key, value in oom.items() if key != "at_s")
        yield oom["at_s"], "oom", float(request)
    for expected in vector["expected"]:
        yield expected["at_s"], "expected", expected


def compare(made, expected):
    """Tolerance: 4 millicores (for upper bounds times upper / target) and 1e-6 of the bytes."""
    target = expected["target"]["cpu_millicores"]
    for bound in ("target", "lower", "upper"):
        cores, memory = np.minimum(getattr(made, bound)[:, 0] * [1000.0, 1.0], LARGEST)
        of = expected[bound]
        factor = of["cpu_millicores"] / target if bound == "upper" else 1.0
        assert cores == pytest.approx(of["cpu_millicores"], abs=4.0 * factor, rel=0.0), bound
        assert memory == pytest.approx(of["memory_bytes"], rel=1e-6), bound


IN_PROGRESS_PATIENCE_S = 3600.0
"""InProgressResizeUpdateTimeout. Here a resize that fits its node is made at once, so none is in progress."""


# --- the updater -----------------------------------------------------------------------------------


@vectors("vpa/priority", DIFFERS)
def test_the_updater_compares_requests_as_kubernetes_does(vector):
    (container,) = vector["containers"]
    stated = [name for name in RESOURCES if name in container["request"]]

    def values(key, default=0.0):
        return np.array([[container[key].get(name, default)] for name in stated])

    bounds = Estimate(values("target"), values("lower"), values("upper", np.inf))
    assert outside(values("request"), bounds).tolist() == [vector["expected"]["outside"]]
    assert drift(values("request"), bounds.target) == pytest.approx(
        [vector["expected"]["diff"]], rel=vector["relative_tolerance"]
    )


@vectors("vpa/updates")
def test_the_updater_chooses_whom_kubernetes_does(vector):
    ran_s = vector["oom_after_running_s"]
    chosen = worth_updating(
        np.array([vector["outside"]]),
        np.array([vector["diff"]]),
        np.array([vector["age_s"]]),
        np.array([np.inf if ran_s is None else ran_s]),
        VpaSettings(min_age_s=vector["min_age_s"], update_threshold=vector["min_change"]),
    )
    assert chosen.tolist() == [vector["expected"]["updated"]]


@vectors("vpa/in_place", DIFFERS)
def test_the_updater_goes_on_from_a_resize_as_kubernetes_does(vector):
    if vector["id"].startswith("retry_"):
        last, now = (
            np.array([[(vector[key] or {}).get(name, np.nan)] for name in RESOURCES])
            for key in ("last_infeasible", "recommended")
        )
        assert worth_another_try(last, now).tolist() == [vector["expected"]]
        return
    mode = {"InPlaceOrRecreate": "in_place_or_recreate", "InPlace": "in_place"}.get(vector["mode"])
    if mode is None:  # the default mode evicts whom it updates
        assert (vector["expected"], VpaSettings().in_place) == ("evict", False)
        return
    in_progress = vector["resize"] not in (None, "pending")
    deferred = np.array([in_progress or vector["reason"] == "Deferred"])
    infeasible = np.array([vector["reason"] == "Infeasible"])
    waited = np.array([vector["since_last_attempt_s"] or 0.0])
    patience_s = IN_PROGRESS_PATIENCE_S if in_progress else VpaSettings().resize_patience_s
    step = next_step(mode, deferred, infeasible, waited, patience_s)
    assert Step(step[0]).name.lower() == vector["expected"]


@vectors("vpa/kubelet")
def test_the_kubelet_refuses_a_memory_limit_that_is_not_above_the_usage(vector):
    sizes = (vector["limit_bytes"], vector["new_limit_bytes"], vector["usage_bytes"])
    changes = not refused(*(np.array([float(size)]) for size in sizes))[0]
    expected = vector["expected"]
    # Ours leaves out the whole update: CPU waits with the memory.
    assert changes == expected["memory_changes"]
    assert (changes and vector["new_cpu"]) == expected["cpu_changes"]
