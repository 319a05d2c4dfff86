"""Schedulers: they decide which jobs run on which GPUs, and when.

For: the table of policies, and `make`, which builds a policy from its name and its settings. Not for: the
policies themselves. The seed given determines all random draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, get_type_hints

from control.scheduler.allox import Allox, AlloxSettings
from control.scheduler.gavel import (
    Cost,
    FinishTimeFair,
    GavelSettings,
    Isolated,
    Makespan,
    MaxMin,
    Rounds,
)
from control.scheduler.hadar import Hadar, HadarE, HadarSettings
from control.scheduler.model import Cluster
from control.scheduler.pairs import Gandiva, SharedMaxMin, UnitShares
from control.scheduler.pollux import Pollux, PolluxSettings
from control.scheduler.ports import Scheduler
from control.scheduler.queues import Fifo, FifoMoving, Yarn
from control.scheduler.quotas import Quotas
from control.scheduler.shared_rounds import SharedRounds
from control.scheduler.tiresias import Tiresias, TiresiasSettings
from control.settings import typed
from twinbed import ScenarioError

SETTINGS: dict[str, type[Any]] = {
    "tiresias": TiresiasSettings,
    "gavel": GavelSettings,
    "hadar": HadarSettings,
    "allox": AlloxSettings,
    "pollux": PolluxSettings,
}
"""Settings of policies, by family: frozen dataclasses of `control.settings.parameter`s."""

Settings = Mapping[str, Any]
"""Settings objects by family, one for each of SETTINGS."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A row of the table.

    about: what the policy does, in one line.
    make: cluster, seed and settings → scheduler.
    family: family of its settings in SETTINGS, "" without any.
    twin_only: whether only the twin can carry it out, because jobs run as copies.
    """

    about: str
    make: Callable[[Cluster, int, Settings], Scheduler]
    family: str = ""
    twin_only: bool = False


def _rounds(shares: Callable[[Cluster], Any]) -> Callable[[Cluster, int, Settings], Scheduler]:
    return lambda cluster, seed, given: Rounds(cluster, seed, given["gavel"], shares)


def _units(shares: Callable[[Cluster, int], UnitShares]) -> Callable[[Cluster, int, Settings], Scheduler]:
    return lambda cluster, seed, given: SharedRounds(cluster, seed, given["gavel"], shares)


POLICIES: dict[str, Policy] = {
    "fifo": Policy(
        "first come, first served; the head of the queue blocks; a random type that has room",
        lambda cluster, seed, _: Fifo(cluster, seed),
    ),
    "fifo-backfill": Policy(
        "FIFO in which later jobs may pass one that does not fit",
        lambda cluster, seed, _: Fifo(cluster, seed, backfill=True),
    ),
    "fifo-fastest": Policy(
        "FIFO that takes the job's fastest type that has room",
        lambda cluster, seed, _: Fifo(cluster, seed, fastest=True),
    ),
    "fifo-moving": Policy(
        "FIFO that gives all jobs their fastest types anew at each event; running jobs move",
        lambda cluster, *_: FifoMoving(cluster),
    ),
    "fifo-packed": Policy(
        "FIFO in which a job that does not fit may share the GPUs of one with which it keeps its speed",
        lambda cluster, seed, _: Fifo(cluster, seed, packed=True),
    ),
    "yarn": Policy(
        "capacity queues: guaranteed shares, idle GPUs lent, FIFO inside a queue",
        lambda cluster, seed, _: Yarn(cluster, seed),
    ),
    "tiresias": Policy(
        "least attained service in discrete queues, preemptive; the first type, as listed, that has room",
        lambda cluster, _, given: Tiresias(cluster, given["tiresias"]),
        "tiresias",
    ),
    "las": Policy(
        "max-min fairness blind to types, in rounds", _rounds(partial(MaxMin, blind=True)), "gavel"
    ),
    "gavel": Policy("max-min fairness over speeds, water-filled, in rounds", _rounds(MaxMin), "gavel"),
    "gavel-ftf": Policy("finish-time fairness, in rounds", _rounds(FinishTimeFair), "gavel"),
    "gavel-makespan": Policy("the earliest end of the last job, in rounds", _rounds(Makespan), "gavel"),
    "gavel-cost": Policy("most work for the money, deadlines kept, in rounds", _rounds(Cost), "gavel"),
    "gavel-sharing": Policy(
        "max-min fairness over speeds of jobs alone and of pairs on the same GPUs, in rounds",
        _units(SharedMaxMin),
        "gavel",
    ),
    "gandiva": Policy(
        "random pairs on the same GPUs while GPUs are short, in rounds", _units(Gandiva), "gavel"
    ),
    "allox": Policy(
        "waiting jobs matched with GPUs and places in their queues for the least mean time",
        lambda cluster, _, given: Allox(cluster, given["allox"]),
        "allox",
    ),
    "pollux": Policy(
        "GPUs and batch of all jobs for the best goodput beside an equal share; a reading of its section 4.2",
        lambda cluster, seed, given: Pollux(cluster, seed, given["pollux"]),
        "pollux",
    ),
    "isolated": Policy("an equal part of every type for every job, in rounds", _rounds(Isolated), "gavel"),
    "hadar": Policy(
        "prices that rise with use; mixes types; a reading of its abstract",
        lambda cluster, _, given: Hadar(cluster, given["hadar"]),
        "hadar",
    ),
    "hadar-e": Policy(
        "hadar, with copies of jobs on idle servers that train side by side; a reading of its abstract",
        lambda cluster, _, given: HadarE(cluster, given["hadar"]),
        "hadar",
        twin_only=True,
    ),
}
"""Policies by name."""


_OWN_QUOTAS = ("yarn", "isolated")
"""Policies without a quota in front: the first keeps quotas itself, the second is the reference of
fairness."""


def make(name: str, cluster: Cluster, seed: int, settings: Settings | None = None) -> Scheduler:
    """Return a new scheduler, which keeps the queues' quotas. settings: by family; families not given keep
    their defaults.

    Raises ScenarioError for an unknown policy, and for quotas if jobs may grow.
    """
    if name not in POLICIES:
        close = get_close_matches(name, POLICIES) or list(POLICIES)
        raise ScenarioError(f"no scheduler {name!r}; close: {', '.join(close)}")
    defaults = {family: kind() for family, kind in SETTINGS.items()}
    made = POLICIES[name].make(cluster, seed, {**defaults, **(settings or {})})
    return made if name in _OWN_QUOTAS else within_quotas(name, cluster, made)


def within_quotas(name: str, cluster: Cluster, scheduler: Scheduler) -> Scheduler:
    """Return the scheduler, behind the queues' quotas if a queue has one.

    Raises ScenarioError, which begins with `name`, if the scheduler lets jobs grow.
    """
    if not (cluster.queue_most < 1).any():
        return scheduler
    if scheduler.elastic:
        raise ScenarioError(
            f"{name}: jobs outgrow their queues' quotas; leave out `most` in cluster.queues, or choose "
            "another policy, such as gavel"
        )
    return Quotas(cluster, scheduler)


def settings(family: str, values: Mapping[str, Any]) -> Any:
    """Return the settings of a family. Raises ScenarioError naming an unknown family, key or wrong value."""
    if family not in SETTINGS:
        raise ScenarioError(f"{family}: has no settings; {', '.join(SETTINGS)} have")
    known = get_type_hints(SETTINGS[family])
    for key in values:
        if key not in known:
            raise ScenarioError(f"{family}.{key}: there is no such key; known: {', '.join(sorted(known))}")
    return SETTINGS[family](
        **{key: typed(f"{family}.{key}", value, known[key]) for key, value in values.items()}
    )
