"""T1 to T5, `fleet` and `intervals`: what faults at the edge cost jobs, collectives, sends and fleets.

For: the definitions, and the assumptions behind them that are changed one at a time. Not for: the physics
(twin.fabric). Source: the THORN-ML chapter: T1 table 3.1, T2 section 3.5.2.1 and figure 3.5, T3 figure 3.6,
T4 section 3.5.3, T5 section 3.5.4 and figure 3.8. The questions about fleets are ours; the source only
estimates. None of the declared values was chosen by its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from studies.experiments.measures import Pick, change, difference, mean, scaled
from studies.experiments.model import Case, Change, Edit, Experiment, Figure, Measure, changes, figures

_KIND = "fabric.faults.kind"
_MANY, _QUIET = {_KIND: "round_robin"}, {_KIND: "none"}


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
"""An experiment leaves out the timeout that its calibration has."""

LINK = (_value("MTU 1024 B", queue_pair__mtu_bytes=1024.0), _value("delay ×5", link__delay_s=5e-6))
SIGNAL = Change("carrier signal", ("fabric.faults.silent=false",))


def _in_every_fabric(title: str, **sections: dict[str, float]) -> Change:
    """Return a change of values in each of the scenario's fabrics."""

    def edit(raw: dict[str, Any]) -> dict[str, Any]:
        fabrics = [fabric | {"values": sections} for fabric in raw["vary"]["fabric"]]
        return raw | {"vary": {"fabric": fabrics}}

    edited: Edit = edit
    return Change(title, of_scenario=edited)


_T1_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet101": ("ResNet101, data parallel", {"fabric.training.parameters": 44500000.0}),
    "gpt2_dp": (
        "GPT-2, data parallel",
        {"fabric.training.parameters": 124000000.0, "fabric.training.data": 4},
    ),
    "gpt2_pp": ("GPT-2, pipeline parallel", {"fabric.training.pipeline": 4}),
    "gpt2_pp_tp": ("GPT-2, pipeline and tensor parallel", {"fabric.training.tensor": 2}),
}


def _deaths() -> Iterator[Figure]:
    for key, (title, where) in _T1_JOBS.items():
        yield Figure(key, f"Standstill: {title}", "s", 1, mean("stuck_s", Pick("none", where)))
    for key, (title, where) in _T1_JOBS.items():
        moved = change("job_s", Pick("thorn", where), Pick("none", where))
        yield Figure(f"{key}_thorn", f"Job time, THORN against none: {title}", "%", 1, moved, detail=True)


T1 = Experiment(
    name="T1",
    title="What a death costs a job that saves after every epoch",
    scenario="T1.yaml",
    method=(
        "The longest time in which a job with one path makes no progress: from a silent fault just before "
        "the end of an epoch until the job reaches that point again. The times to save, to start and of an "
        "epoch are the source's own (table 3.1). The twin adds how long the fault is not noticed, or not "
        "repaired (10 s). The source's figures are the sum of start and epoch, without either."
    ),
    figures=tuple(_deaths()),
    discussion=(
        "This does not test the twin alone, because start and epoch are inputs. Beyond them the twin adds "
        "the repair of the port, 10 s, which is longer than the 8.6 s after which queue pairs give up. So "
        "neither their timeout nor their retries move the figure, as long as they do give up. With NCCL's "
        "newer timeout (2^20) they outlive the repair, and the job does not die at all. The source's sum is "
        "the least that a death can cost.",
    ),
    sensitivity=(
        _in_every_fabric("ACK timeout 2^14", queue_pair={"timeout": 14.0}),
        _in_every_fabric("ACK timeout 2^20", queue_pair={"timeout": 20.0}),
        _in_every_fabric("3 retries", queue_pair={"retry_count": 3.0}),
    ),
)

_SINGLE = {_KIND: "single", "fabric.faults.at_s": 7990}


def _slower(scheme: str, where: Mapping[str, Any]) -> Measure:
    return change("job_s", Pick(scheme, where), Pick("none", _QUIET))


def _percent(metric: str, scheme: str, where: Mapping[str, Any]) -> Measure:
    return scaled(100, mean(metric, Pick(scheme, where)))


_THEN = "Accuracy when the undisturbed job ends"

_T2 = figures(
    ("many_thorn", "Job time, THORN with many faults against none", "%", 2, _slower("thorn", _MANY)),
    (
        "single_stuck", "Standstill after a single fault, checkpoints alone", "s", 0,
        mean("stuck_s", Pick("none", _SINGLE)),
    ),
    (
        "many_kept", "Work done with many faults, checkpoints alone", "%", 1,
        _percent("kept_share", "none", _MANY),
    ),
    ("accuracy_quiet", f"{_THEN}: no faults", "%", 1, _percent("accuracy", "none", _QUIET)),
    ("accuracy_thorn", f"{_THEN}: THORN, many faults", "%", 1, _percent("accuracy", "thorn", _MANY)),
    (
        "accuracy_single", f"{_THEN}: checkpoints, a single fault", "%", 1,
        _percent("accuracy", "none", _SINGLE),
    ),
    ("accuracy_many", f"{_THEN}: checkpoints, many faults", "%", 1, _percent("accuracy", "none", _MANY)),
    ("quiet_thorn", "Job time, THORN without faults", "%", 2, _slower("thorn", _QUIET)),
    ("single_thorn", "Job time, THORN with a single fault", "%", 2, _slower("thorn", _SINGLE)),
    (
        "many_software", "Job time, THORN in software with many faults", "%", 2,
        _slower("thorn-software", _MANY),
    ),
    ("many_bond", "Job time, bond with many faults", "%", 2, _slower("bond", _MANY)),
    ("many_reroute", "Job time, rerouting with many faults", "%", 2, _slower("reroute", _MANY)),
    ("single_none", "Job time, checkpoints with a single fault", "%", 2, _slower("none", _SINGLE)),
)  # fmt: skip

T2 = Experiment(
    name="T2",
    title="150 epochs of ResNet101 with faults",
    scenario="T2.yaml",
    method=(
        "Data parallel on 4 hosts. An epoch of 98 iterations takes 80 s, as in the source (an input). "
        "Without a scheme a fault of the only path ends the job once its queue pairs give up; the job starts "
        "again from its last save when the port is back. The single fault strikes 10 s before a save, the "
        "source's case. Many faults: a port is down 20 s of every 40 s, port by port. A job is observed for "
        "twice the time that it needs. Accuracy is that of a small CNN on images made for it. The CNN was "
        "really trained for 150 epochs (studies/fabric/training_curve.py), and its curve is stretched to "
        "these epochs' times."
    ),
    figures=_T2,
    discussion=(
        "THORN keeps the job going, but it costs more than the source says: a fault every 40 s costs 2 %. "
        "Nearly all of that is the queue pairs' own timer. A lost window is sent again when the ACK timeout "
        "ends, after 1.07 s at NCCL's default of the time, three times as long as the path was lost. With "
        "2^14 (67 ms) the cost is 0.5 %, and so it is with fast detection and no hold. So the figure depends "
        "on a setting that the source does not give, and not on BFD.",
        "Both figures for checkpoints come from the walk through deaths, with the source's times to save and "
        "start. They hold only while queue pairs give up before the port is back. With a timeout of 2^20 a "
        "queue pair outlives 20 s, and so does the job.",
    ),
    sensitivity=(*EDGE, ACK_2_14, ACK_2_20),
)

_T3_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "dp": ("Data parallel", {"fabric.training.data": 4}),
    "pp": ("Pipeline parallel", {"fabric.training.pipeline": 4}),
    "pp_tp": ("Pipeline and tensor parallel", {"fabric.training.tensor": 2}),
}


def _iterations(key: str, title: str, where: Mapping[str, Any]) -> Iterator[Figure]:
    with_faults, without = Pick("thorn", {**where, **_MANY}), Pick("thorn", {**where, **_QUIET})
    for share in (90, 95):
        metric = f"iteration_p{share}_s"
        added = scaled(1000, difference(metric, with_faults, without))
        yield Figure(f"{key}_p{share}_ms", f"{title}: added at p{share}", "ms", 1, added)
        percent = change(metric, with_faults, without)
        yield Figure(f"{key}_p{share}", f"{title}: added at p{share}", "%", 1, percent)
    usual = scaled(1000, mean("iteration_p50_s", without))
    yield Figure(f"{key}_usual", f"{title}: iteration without faults", "ms", 0, usual, detail=True)


T3 = Experiment(
    name="T3",
    title="Iterations of GPT-2 with faults all the time",
    scenario="T3.yaml",
    method=(
        "GPT-2 (124 M parameters, 12 layers) on 4 hosts with a GPU each: 4 replicas, 4 stages, or 2 stages "
        "of 2 GPUs. The source gives no batch; 192 sequences of 1,024 tokens an iteration in micro-batches "
        "of 12 and 60 TFLOP/s sustained are assumed. Neighbours have one flow in each direction. Figures are "
        "means of 10 iterations, as in the source, with faults against without, both with THORN."
    ),
    figures=tuple(figure for key, about in _T3_JOBS.items() for figure in _iterations(key, *about)),
    discussion=(
        "A fault adds a step and not a slope: one ACK timeout, 1.07 s, in the one iteration that it meets. "
        "That is 107 ms in a mean of ten, the same for every job. Which percentile shows it depends on how "
        "many means of ten fit into 40 s; in data parallel only p95 does. The source's figures grow with the "
        "iteration, from 5 to 928 ms, which no stall of a connection does. Either more of its job is slower "
        "while a port is down, or its iterations vary by themselves. Ours have no variation of their own.",
        "With an ACK timeout of 2^14 data parallel comes to 7 and 20 ms and pipeline parallel to 34 ms, near "
        "the source's 5-7 and 55-77 ms. BFD's timers matter less than that exponent. Tensor parallel "
        "iterations are six times as long in the source (7.9 s) as ours, whose batch is assumed.",
    ),
    sensitivity=(*EDGE, ACK_2_14, ACK_2_20, SIGNAL),
    sensitivity_part=("policies=[thorn]",),
)

_OPERATION = "fabric.collective.operation"
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
_Compare = Callable[[str, Pick, Pick], Measure]


def _worst(compare: _Compare, metric: str, scheme: str) -> Measure:
    """Return the largest loss of any operation."""

    def measure(cases: Sequence[Case]) -> float:
        losses = [
            -compare(
                metric,
                Pick(scheme, {_OPERATION: operation, **_MANY}),
                Pick(scheme, {_OPERATION: operation, **_QUIET}),
            )(cases)
            for operation in _OPERATIONS
            if Pick(scheme, {_OPERATION: operation}).of(cases)
        ]
        return max(losses, default=float("nan"))

    return measure


_BUS, _REDUCE = "bus_bandwidth_mean_gbps", {_OPERATION: "all_reduce", **_QUIET}

_T4 = figures(
    ("lost", "Bus bandwidth lost, worst operation", "%", 2, _worst(change, _BUS, "thorn")),
    (
        "p80", "Difference at p80, worst operation", "Gbit/s", 3,
        _worst(difference, "bus_bandwidth_p80_gbps", "thorn"),
    ),
    (
        "p20", "Difference at p20, worst operation", "Gbit/s", 3,
        _worst(difference, "bus_bandwidth_p20_gbps", "thorn"),
    ),
    ("lost_bond", "Bus bandwidth lost with a bond, worst operation", "%", 2, _worst(change, _BUS, "bond")),
    (
        "overlay", "Bus bandwidth with the overlay against without it, all-reduce", "%", 2,
        change(_BUS, Pick("thorn", _REDUCE), Pick("none", _REDUCE)),
    ),
)  # fmt: skip

T4 = Experiment(
    name="T4",
    title="Bus bandwidth of collectives with faults all the time",
    scenario="T4.yaml",
    method=(
        "2 GB on 5 hosts, 800 operations of each kind, one flow from a rank to another. Bus bandwidth is as "
        "nccl-tests defines it. Loss: over all operations together. Difference: of the 80th percentiles of "
        "single operations. Both are with faults against without, in the same scheme."
    ),
    figures=_T4,
    discussion=(
        "Percentiles of single operations show nothing, as in the source, because a fault meets one "
        "operation in a hundred. The mean loses more than 2 % in the worst operation, which has most flows "
        "to lose (1 % in an all-reduce). Each fault costs an ACK timeout of 1.07 s, whatever BFD does within "
        "that time. With 2^14 an all-reduce loses 0.3 %, with 2^20 3.9 %.",
        "A bond loses three times as much, because LACP needs 2-3 s to notice a silent fault. The overlay's "
        "headers cost 1.2 %; the source calls that no impact.",
    ),
    sensitivity=(*EDGE, ACK_2_14, ACK_2_20, *LINK, SIGNAL),
    sensitivity_part=("policies=[thorn]", "vary.fabric.collective.operation=[all_reduce]"),
)

_ONE = {_KIND: "single"}
_HIT = Pick("thorn", _ONE)


def _later(share: str) -> Measure:
    return change(f"latency_{share}_s", _HIT, Pick("thorn", _QUIET))


_T5 = figures(
    ("p99", "Latency p99, one fault against none", "%", 2, _later("p99")),
    ("p999", "Latency p99.9, one fault against none", "%", 0, _later("p999")),
    ("longest_ms", "Longest latency", "ms", 1, scaled(1000, mean("latency_max_s", _HIT))),
    ("gap_ms", "Packets lost for", "ms", 1, scaled(1000, mean("gap_max_s", _HIT))),
    ("late", "Messages delayed", "1", 1, mean("late_messages", _HIT)),
    (
        "software", "Latency p50 without faults, THORN in software against offloaded", "%", 0,
        change("latency_p50_s", Pick("thorn-software", _QUIET), Pick("thorn", _QUIET)),
    ),
    ("failed_bond", "Queue pairs lost with a bond", "1", 1, mean("failed", Pick("bond", _ONE))),
    ("failed_none", "Queue pairs lost without a scheme", "1", 1, mean("failed", Pick("none", _ONE))),
)  # fmt: skip

T5 = Experiment(
    name="T5",
    title="RDMA sends of 2^23 bytes through one fault",
    scenario="T5.yaml",
    method=(
        "ib_send_lat between two hosts: 1,000 messages there and back (perftest's default) with a local ACK "
        "timeout of 2^14 (its default, too) and percentiles as it prints them. The fault comes in the "
        "middle, at the port that the messages there take. One fault against none, both with THORN."
    ),
    figures=_T5,
    discussion=(
        "Sends follow one another, so a fault meets exactly one of them. p99 cannot move, and p99.9 of 1,000 "
        "is that one send. This follows from the protocol alone. The whole ACK timeouts that fit into the "
        "time without a path decide how long that send takes; as printed it is half of a round, as "
        "ib_send_lat does. If the path is lost for longer than the retries last (BFD 3×300 ms at 2^14, a "
        "bond, no scheme) the queue pair is in error and the series ends.",
    ),
    sensitivity=(*EDGE, ACK_2_18, ACK_2_20, *LINK, SIGNAL),
    sensitivity_part=("policies=[thorn]",),
)

SIZES = (16, 1024, 8192, 16384, 32768)
_SCHEMES = {"none": "no scheme", "bond": "bond", "reroute": "rerouting", "thorn": "THORN"}


def _fleet(gpus: int) -> tuple[Figure, ...]:
    where = {"fabric.fleet.gpus": gpus}
    none, thorn = Pick("none", where), Pick("thorn", where)
    rows: list[tuple[Any, ...]] = [
        (
            f"effective_{scheme}",
            f"Effective time, {title}",
            "%",
            2,
            _percent("effective_share", scheme, where),
        )
        for scheme, title in _SCHEMES.items()
    ]
    rows += [
        ("deaths_none", "Deaths, no scheme", "1", 1, mean("deaths", none)),
        ("deaths_thorn", "Deaths, THORN", "1", 1, mean("deaths", thorn)),
        ("saved", "GPU-hours that THORN saves", "h", 0, difference("lost_gpu_h", none, thorn)),
        (
            "money", "Money that THORN saves", "1,000 USD", 1,
            scaled(1e-3, difference("lost_cost", none, thorn)),
        ),
        ("interval", "Checkpoint interval, THORN", "s", 0, mean("checkpoint_interval_s", thorn)),
    ]  # fmt: skip
    return figures(*rows, aside=f"{gpus:,}")


FLEET = Experiment(
    name="fleet",
    title="Weeks of training on fleets of 16 to 32,768 GPUs",
    scenario="fleet.yaml",
    method=(
        "54 days of one synchronous job. Cables, adapters and hosts fail as often per GPU as in Llama 3's "
        "fleet, and two uplinks fail twice as often as one. Every fault and every iteration is simulated. "
        "The job saves at Daly's interval for the scheme's own deaths. Repair, save, start and price are "
        "assumptions (docs/reference/scenario.md, FleetInput)."
    ),
    figures=tuple(figure for gpus in SIZES for figure in _fleet(gpus)),
    discussion=(
        "THORN saves the deaths that the edge causes. They are some 7 % of all deaths: Llama 3's fleet lost "
        "most of its jobs to hosts and GPUs, and an adapter takes all its uplinks with it. So THORN saves "
        "half a percent of the time at 16,384 GPUs, which is still a hundred thousand GPU-hours in 54 days. "
        "Below 8,192 GPUs the saving is smaller than the seeds' spread. Every scheme that survives a cable "
        "saves the same. Its speed hardly matters for a fleet, where a start costs ten minutes.",
        "The sign depends on one assumption: that a host with one uplink left is as fast as a host that "
        "never had two. If iterations are slower meanwhile (7.2 s instead of 6.2 s), redundant uplinks cost "
        "more than they save, because they fail twice as often and a synchronous job is as slow as its "
        "slowest host.",
    ),
    sensitivity=changes(
        {
            "start 60 s": "fabric.fleet.init_s=60.0",
            "start 1,800 s": "fabric.fleet.init_s=1800.0",
            "repair 1 h": "fabric.fleet.repair_s=3600.0",
            "save every hour": "fabric.fleet.checkpoint_interval_s=3600.0",
            "save every 10 min": "fabric.fleet.checkpoint_interval_s=600.0",
            "degraded 7.2 s": "fabric.fleet.degraded_iteration_s=7.2",
            "StepFun's faults": "fabric.fleet.rates=stepfun",
            "no spares": "fabric.fleet.spares=0",
        }
    ),
    sensitivity_part=("vary.fabric.fleet.gpus=[16384]",),
    curve="GPUs",
)


def _saves(interval_s: float) -> tuple[Figure, ...]:
    where = {"fabric.fleet.checkpoint_interval_s": interval_s}
    lost = scaled(1e-6, mean("lost_cost", Pick("thorn", where)))
    return figures(
        ("effective_none", "Effective time, no scheme", "%", 2, _percent("effective_share", "none", where)),
        ("effective_thorn", "Effective time, THORN", "%", 2, _percent("effective_share", "thorn", where)),
        ("lost", "Money lost, THORN", "1,000,000 USD", 2, lost),
        aside=f"{interval_s:,.0f} s",
    )


INTERVALS = Experiment(
    name="intervals",
    title="How often 16,384 GPUs should save",
    scenario="intervals.yaml",
    method=(
        "As `fleet`, with a given interval of work between two saves. 684 s is Daly's interval for THORN's "
        "deaths (a save takes 20 s)."
    ),
    figures=tuple(
        figure
        for interval_s in (120.0, 300.0, 684.0, 1800.0, 3600.0, 7200.0)
        for figure in _saves(interval_s)
    ),
    discussion=(
        "Daly's interval is the best of those tried, with a scheme and without; 300 s or 1,800 s cost 1.5 to "
        "3 points of the time. THORN saves more at longer intervals, because each death that it prevents "
        "would have lost half an interval of work.",
    ),
    curve="Work between two saves",
)
