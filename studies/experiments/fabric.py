"""T1 to T5: the cost of faults at the edge for jobs, collectives and sends.

For: the definitions, and the assumptions behind them that are changed one at a time. Not for: the physics
(twin.fabric). Source: the THORN-ML chapter: T1 table 3.1, T2 section 3.5.2.1 and figure 3.5, T3 figure 3.6,
T4 section 3.5.3, T5 section 3.5.4 and figure 3.8. Every figure stands for two adapters (PROFILES), because
the source does not name its own. None of the declared values was chosen by its results.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from studies.experiments.measures import Pick, change, difference, mean, percent, scaled
from studies.experiments.model import Case, Change, Experiment, Figure, Measure, figures, written

_KIND, _PROFILE = "fabric.faults.kind", "fabric.retry_profile"
_MANY, _QUIET = {_KIND: "round_robin"}, {_KIND: "none"}
PROFILES = ("cx6-20.43", "plain")
"""Retry profiles of T1 to T5: the usual adapter of training clusters, and the specification."""


def _value(title: str, **values: float) -> Change:
    """Return a change of values of the calibration, written as SECTION__KEY."""
    texts = (f"fabric.values.{key.replace('__', '.')}={value}" for key, value in values.items())
    return Change(title, tuple(texts))


EDGE = (
    _value("BFD 3×50 ms", bfd__multiplier=3.0),
    _value("BFD 3×20 ms", bfd__interval_s=0.02, bfd__multiplier=3.0),
    _value("BFD 3×10 ms", bfd__interval_s=0.01, bfd__multiplier=3.0),
    _value("BFD 3×300 ms", bfd__interval_s=0.3, bfd__multiplier=3.0),
    _value("no BGP hold", control__hold_s=0.0),
    _value("BFD 3×10 ms, no BGP hold", bfd__interval_s=0.01, bfd__multiplier=3.0, control__hold_s=0.0),
)
ACK_2_14, ACK_2_18, ACK_2_20 = (
    _value(f"ACK timeout 2^{exponent}", queue_pair__timeout=float(exponent)) for exponent in (14, 18, 20)
)
"""Other ACK timeouts; an experiment leaves out its calibration's own."""

LINK = (_value("MTU 1024 B", queue_pair__mtu_bytes=1024.0), _value("delay ×5", link__delay_s=5e-6))
SIGNAL = Change("carrier signal", ("fabric.faults.silent=false",))


def _by_profile(
    rows: Callable[[Mapping[str, Any]], Iterable[tuple[Any, ...]]], shown: Container[str]
) -> tuple[Figure, ...]:
    """Return the figures of `rows` for every retry profile, one profile after another.

    rows: takes the setting of a profile and yields rows of Figure's values. shown: keys of the figures that
    the sensitivity tables show.
    """
    columns = [figures(*rows({_PROFILE: profile}), aside=profile) for profile in PROFILES]
    every = (figure for row in zip(*columns, strict=True) for figure in row)
    return tuple(replace(figure, detail=figure.quantity not in shown) for figure in every)


def _in_every_fabric(title: str, **sections: dict[str, float]) -> Change:
    """Return a change of values in each of the scenario's fabrics."""

    def edit(raw: dict[str, Any]) -> dict[str, Any]:
        fabrics = [fabric | {"values": sections} for fabric in raw["vary"]["fabric"]]
        return raw | {"vary": {"fabric": fabrics}}

    return Change(title, of_scenario=edit)


def _varying(title: str, cv: float) -> Change:
    """Return a change of the variation of the scenario's iterations. cv: coefficient of variation."""

    def edit(raw: dict[str, Any]) -> dict[str, Any]:
        trainings = [training | {"jitter_cv": cv} for training in raw["vary"]["fabric.training"]]
        return raw | {"vary": raw["vary"] | {"fabric.training": trainings}}

    return Change(title, of_scenario=edit)


_T1_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet101": ("ResNet101, data parallel", {"fabric.training.parameters": 44.5e6}),
    "gpt2_dp": ("GPT-2, data parallel", {"fabric.training.parameters": 124e6, "fabric.training.data": 4}),
    "gpt2_pp": ("GPT-2, pipeline parallel", {"fabric.training.pipeline": 4}),
    "gpt2_pp_tp": ("GPT-2, pipeline and tensor parallel", {"fabric.training.tensor": 2}),
}


def _deaths(profile: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for key, (title, where) in _T1_JOBS.items():
        yield key, f"Standstill: {title}", "s", 1, mean("stuck_s", Pick("none", {**where, **profile}))
    for key, (title, where) in _T1_JOBS.items():
        thorn, none = (Pick(scheme, {**where, **profile}) for scheme in ("thorn", "none"))
        yield f"{key}_thorn", f"Job time, THORN against none: {title}", "%", 1, change("job_s", thorn, none)


T1 = Experiment(
    **written("T1"),
    scenario="T1.yaml",
    figures=_by_profile(_deaths, _T1_JOBS),
    sensitivity=(
        _in_every_fabric("ACK timeout 2^14", queue_pair={"timeout": 14.0}),
        _in_every_fabric("ACK timeout 2^20", queue_pair={"timeout": 20.0}),
        _in_every_fabric("3 retries", queue_pair={"retry_count": 3.0}),
    ),
)

_SINGLE = {_KIND: "single", "fabric.faults.at_s": 7990}


def _slower(scheme: str, where: Mapping[str, Any], profile: Mapping[str, Any]) -> Measure:
    return change("job_s", Pick(scheme, {**where, **profile}), Pick("none", {**_QUIET, **profile}))


_THEN = "Accuracy when the undisturbed job ends"


def _t2(profile: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    many, single, quiet = ({**kind, **profile} for kind in (_MANY, _SINGLE, _QUIET))
    slower, stuck = _slower("thorn", _MANY, profile), mean("stuck_s", Pick("none", single))
    kept = percent("kept_share", Pick("none", many))
    yield "many_thorn", "Job time, THORN with many faults against none", "%", 2, slower
    yield "single_stuck", "Standstill after a single fault, checkpoints alone", "s", 0, stuck
    yield "many_kept", "Work done with many faults, checkpoints alone", "%", 1, kept
    for key, title, scheme, where in (
        ("quiet", "no faults", "none", quiet),
        ("thorn", "THORN, many faults", "thorn", many),
        ("single", "checkpoints, a single fault", "none", single),
        ("many", "checkpoints, many faults", "none", many),
    ):
        yield f"accuracy_{key}", f"{_THEN}: {title}", "%", 1, percent("accuracy", Pick(scheme, where))
    for key, title, scheme, kind in (
        ("quiet_thorn", "THORN without faults", "thorn", _QUIET),
        ("single_thorn", "THORN with a single fault", "thorn", _SINGLE),
        ("many_software", "THORN in software with many faults", "thorn-software", _MANY),
        ("many_bond", "bond with many faults", "bond", _MANY),
        ("many_reroute", "rerouting with many faults", "reroute", _MANY),
        ("single_none", "checkpoints with a single fault", "none", _SINGLE),
    ):
        yield key, f"Job time, {title}", "%", 2, _slower(scheme, kind, profile)


T2 = Experiment(
    **written("T2"),
    scenario="T2.yaml",
    figures=_by_profile(_t2, ("many_thorn", "single_stuck", "many_kept")),
    sensitivity=(*EDGE, ACK_2_14, ACK_2_20),
)

_T3_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "dp": ("Data parallel", {"fabric.training.data": 4}),
    "pp": ("Pipeline parallel", {"fabric.training.pipeline": 4}),
    "pp_tp": ("Pipeline and tensor parallel", {"fabric.training.tensor": 2}),
}


def _iterations(profile: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for key, (title, where) in _T3_JOBS.items():
        with_faults, without = (Pick("thorn", {**where, **kind, **profile}) for kind in (_MANY, _QUIET))
        for share in (90, 95):
            metric, text = f"iteration_p{share}_s", f"{title}: added at p{share}"
            added = scaled(1000, difference(metric, with_faults, without))
            yield f"{key}_p{share}_ms", text, "ms", 1, added
            yield f"{key}_p{share}", text, "%", 1, change(metric, with_faults, without)
        usual = scaled(1000, mean("iteration_p50_s", without))
        yield f"{key}_usual", f"{title}: iteration without faults", "ms", 0, usual


T3 = Experiment(
    **written("T3"),
    scenario="T3.yaml",
    figures=_by_profile(_iterations, [f"{job}_p{share}_ms" for job in _T3_JOBS for share in (90, 95)]),
    sensitivity=(
        *EDGE,
        ACK_2_14,
        ACK_2_20,
        SIGNAL,
        _varying("iterations do not vary", 0.0),
        _varying("iterations vary by 5 %", 0.05),
    ),
    sensitivity_part=("policies=[thorn]",),
)

_OPERATION, _SIZE = "fabric.collective.operation", "fabric.collective.message_bytes"
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
_Compare = Callable[[str, Pick, Pick], Measure]


def _worst(compare: _Compare, metric: str, scheme: str, where: Mapping[str, Any]) -> Measure:
    """Return the largest loss of any operation."""

    def measure(cases: Sequence[Case]) -> float:
        losses = [
            -compare(
                metric,
                Pick(scheme, {_OPERATION: operation, **where, **_MANY}),
                Pick(scheme, {_OPERATION: operation, **where, **_QUIET}),
            )(cases)
            for operation in _OPERATIONS
            if Pick(scheme, {_OPERATION: operation, **where}).of(cases)
        ]
        return max(losses, default=float("nan"))

    return measure


_BUS = "bus_bandwidth_mean_gbps"
_SIZES = {"2 GB": 2_000_000_000, "1 GB": 1_000_000_000, "250 MB": 250_000_000, "100 MB": 100_000_000}


def _t4(profile: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for text, size in _SIZES.items():
        key = text.replace(" ", "").lower()
        where = {_SIZE: size, **profile}
        worst = _worst(change, _BUS, "thorn", where)
        yield f"lost_{key}", f"Bus bandwidth lost, {text}, worst operation", "%", 2, worst
        for share in (80, 20):
            apart = _worst(difference, f"bus_bandwidth_p{share}_gbps", "thorn", where)
            title = f"Difference at p{share}, {text}, worst operation"
            yield f"p{share}_{key}", title, "Gbit/s", 3, apart
    where = {_SIZE: _SIZES["2 GB"], **profile}
    reduce = {_OPERATION: "all_reduce", **_QUIET, **where}
    faulty = Pick("thorn", {**reduce, **_MANY})
    thorn = Pick("thorn", reduce)
    lost, bond = scaled(-1, change(_BUS, faulty, thorn)), _worst(change, _BUS, "bond", where)
    title = "Bus bandwidth with the overlay against without it, 2 GB, all-reduce"
    yield "lost_reduce", "Bus bandwidth lost, 2 GB, all-reduce", "%", 2, lost
    yield "lost_bond", "Bus bandwidth lost with a bond, 2 GB, worst operation", "%", 2, bond
    yield "overlay", title, "%", 2, change(_BUS, thorn, Pick("none", reduce))


T4 = Experiment(
    **written("T4"),
    scenario="T4.yaml",
    figures=_by_profile(_t4, ("lost_reduce", "p80_2gb")),
    sensitivity=(*EDGE, ACK_2_14, ACK_2_20, *LINK, SIGNAL),
    sensitivity_part=(
        "policies=[thorn]",
        "vary.fabric.collective=[{operation: all_reduce, message_bytes: 2000000000, repeats: 800}]",
    ),
)

_ONE = {_KIND: "single"}


def _t5(profile: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    hit, quiet = (Pick("thorn", {**kind, **profile}) for kind in (_ONE, _QUIET))
    for key, share, decimals in (("p99", "p99", 2), ("p999", "p99.9", 0)):
        later = change(f"latency_{key}_s", hit, quiet)
        yield key, f"Latency {share}, one fault against none", "%", decimals, later
    yield "longest_ms", "Longest latency", "ms", 1, scaled(1000, mean("latency_max_s", hit))
    yield "gap_ms", "Packets lost for", "ms", 1, scaled(1000, mean("gap_max_s", hit))
    yield "late", "Messages delayed", "1", 1, mean("late_messages", hit)
    slower = change("latency_p50_s", Pick("thorn-software", {**_QUIET, **profile}), quiet)
    yield "software", "Latency p50 without faults, THORN in software against offloaded", "%", 0, slower
    for scheme, title in (("bond", "with a bond"), ("none", "without a scheme")):
        lost = mean("failed", Pick(scheme, {**_ONE, **profile}))
        yield f"failed_{scheme}", f"Queue pairs lost {title}", "1", 1, lost


T5 = Experiment(
    **written("T5"),
    scenario="T5.yaml",
    figures=_by_profile(_t5, ("p99", "p999", "longest_ms", "late")),
    sensitivity=(*EDGE, ACK_2_18, ACK_2_20, *LINK, SIGNAL),
    sensitivity_part=("policies=[thorn]",),
)
