"""What edge faults cost training fleets of 16 to 32,768 GPUs: a question that the source only estimates."""

from __future__ import annotations

from collections.abc import Iterator

from studies.experiments.measures import Pick, difference, mean, scaled
from studies.experiments.model import Change, Experiment, Figure

SIZES = (16, 1024, 8192, 16384, 32768)
_TITLES = {"none": "no scheme", "bond": "bond", "reroute": "rerouting", "thorn": "THORN"}


def _figures(gpus: int) -> Iterator[Figure]:
    where, aside = {"fabric.fleet.gpus": gpus}, f"{gpus:,}"
    for scheme, title in _TITLES.items():
        share = scaled(100, mean("effective_share", Pick(scheme, where)))
        yield Figure(f"effective_{scheme}@{aside}", f"Effective time, {title}", "%", 2, share, aside)
    for scheme in ("none", "thorn"):
        deaths = mean("deaths", Pick(scheme, where))
        yield Figure(f"deaths_{scheme}@{aside}", f"Deaths, {_TITLES[scheme]}", "1", 1, deaths, aside)
    saved = difference("lost_gpu_h", Pick("none", where), Pick("thorn", where))
    yield Figure(f"saved@{aside}", "GPU-hours that THORN saves", "h", 0, saved, aside)
    money = scaled(1e-3, difference("lost_cost", Pick("none", where), Pick("thorn", where)))
    yield Figure(f"money@{aside}", "Money that THORN saves", "1,000 USD", 1, money, aside)
    interval = mean("checkpoint_interval_s", Pick("thorn", where))
    yield Figure(f"interval@{aside}", "Checkpoint interval, THORN", "s", 0, interval, aside)


FLEET = Experiment(
    name="fleet",
    title="Weeks of training on fleets of 16 to 32,768 GPUs",
    scenario="fleet.yaml",
    method=(
        "54 days of one synchronous job; cables, adapters and hosts fail as often per GPU as in Llama 3's "
        "fleet, two uplinks twice as often as one. Every fault is simulated, and every iteration. Saves at "
        "Daly's interval for the scheme's own deaths. Repair, save, start and price are assumptions "
        "(docs/reference/scenario.md, FleetInput)."
    ),
    figures=tuple(figure for gpus in SIZES for figure in _figures(gpus)),
    discussion=(
        "What THORN saves is what the edge kills: some 7 % of the deaths, since Llama 3's fleet lost most "
        "of its jobs to hosts and GPUs, and an adapter takes all its uplinks with it. So it is half a "
        "percent of the time at 16,384 GPUs, which is still a hundred thousand GPU-hours in 54 days; below "
        "8,192 GPUs it is less than the seeds differ. Any scheme that survives a cable does the same: how "
        "fast it is hardly matters for a fleet, where a start costs ten minutes.",
        "The sign hangs on one assumption: that a host with one uplink left is as fast as one that never "
        "had two. If iterations are slower meanwhile (7.2 s for 6.2 s), redundant uplinks cost more than "
        "they save, because they fail twice as often and a synchronous job is as slow as its slowest host.",
    ),
    sensitivity=(
        Change("start 60 s", ("fabric.fleet.init_s=60.0",)),
        Change("start 1,800 s", ("fabric.fleet.init_s=1800.0",)),
        Change("repair 1 h", ("fabric.fleet.repair_s=3600.0",)),
        Change("save every hour", ("fabric.fleet.checkpoint_interval_s=3600.0",)),
        Change("save every 10 min", ("fabric.fleet.checkpoint_interval_s=600.0",)),
        Change("degraded 7.2 s", ("fabric.fleet.degraded_iteration_s=7.2",)),
        Change("StepFun's faults", ("fabric.fleet.rates=stepfun",)),
        Change("no spares", ("fabric.fleet.spares=0",)),
    ),
    sensitivity_part=("vary.fabric.fleet.gpus=[16384]",),
    curve="GPUs",
)
