"""Recommenders: they choose a cluster for a job, with reasons.

For: the table of recommenders, and `make` and `choose`, which build one from its name as it comes from a
command line or a form. Not for: the recommenders themselves. Their modules are imported when one is built, so
that the command line can list the table without waiting for SciPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from twinbed import ScenarioError

if TYPE_CHECKING:
    from control.recommender.fc2 import Server
    from control.recommender.ports import Recommender, Request


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table.

    factory: function or class that builds the recommender, as `module:name` in this package. title: its name
    in a form.
    summary: how it decides, in one line. needs: its inputs besides the job and the candidates. seeded:
    whether its search depends on the seed. tunes_batch: whether it chooses among batch sizes, too.
    needs_server: whether every candidate needs a parameter server, given as `server`.
    """

    factory: str
    title: str
    summary: str
    needs: str
    seeded: bool = False
    tunes_batch: bool = False
    needs_server: bool = False


RECOMMENDERS: dict[str, Method] = {
    "transfer": Method(
        "transfer:Transfer",
        "Transfer from past jobs",
        "learns from past jobs, scaling laws and its own trials, and needs few trials",
        "nothing; past jobs and a local run sharpen it",
        seeded=True,
    ),
    "analytic": Method(
        "analytic:Analytic",
        "Analytic model of the local run",
        "ranks by the times that an analytic model expects, without any trial",
        "a local run and the number of samples",
    ),
    "cherrypick": Method(
        "cherrypick:CherryPick",
        "CherryPick",
        "Bayesian optimisation of the job's own trials",
        "trials; it starts without any",
        seeded=True,
    ),
    "ernest": Method(
        "ernest:Ernest",
        "Ernest",
        "fits a scaling law to small runs on each instance type",
        "trials on every type; it starts without any",
    ),
    "scavenger": Method(
        "scavenger:Scavenger",
        "Scavenger",
        "searches workers and batch by a model of goodput, from its trials' steps and gradients",
        "trials; it starts without any",
        tunes_batch=True,
    ),
    "cost-opt": Method(
        "fc2:COST_OPT",
        "Cost-Opt (FC²)",
        "as many workers of the cheapest type as the budget pays for",
        "a parameter server",
        needs_server=True,
    ),
    "time-opt": Method(
        "fc2:TIME_OPT",
        "Time-Opt (FC²)",
        "as many workers of the most expensive type as the budget pays for",
        "a parameter server",
        needs_server=True,
    ),
    "scala-opt": Method(
        "fc2:SCALA_OPT",
        "Scala-Opt (FC²)",
        "as many workers as the parameter server's network can serve, of the type of which it serves fewest",
        "a parameter server, and the network use of one worker of each type, or a local run",
        needs_server=True,
    ),
    "scala-opt-m": Method(
        "fc2:SCALA_OPT_M",
        "Scala-Opt-M (FC²)",
        "Scala-Opt for the one type that you fix",
        "a parameter server, one type, and the network use of one worker of it, or a local run",
        needs_server=True,
    ),
    "scala-opt-cheapest": Method(
        "fc2:SCALA_OPT_CHEAPEST",
        "Scala-Opt-Cheapest (FC²)",
        "Scala-Opt that takes the cheapest, not the dearest, of types with equal numbers of workers",
        "a parameter server, and the network use of one worker of each type, or a local run",
        needs_server=True,
    ),
    "random": Method(
        "plain_search:RandomSearch",
        "Random search",
        "tries candidates in a random order",
        "trials",
        seeded=True,
    ),
    "exhaustive": Method(
        "plain_search:Exhaustive", "Exhaustive search", "tries every candidate, the cheapest first", "trials"
    ),
}
"""Recommenders by the name that users give."""

METHODS: dict[str, str] = {name: row.summary for name, row in RECOMMENDERS.items()} | {
    "spotdnn": "plans unequal spot machines that train to a loss in time"
}
"""Names that `twinbed recommend --method` takes, each with how it decides: the recommenders, and spotDNN's
planner (spotdnn_plans), which answers a question of its own."""


def make(
    name: str,
    settings: Mapping[str, float] | None = None,
    *,
    server: Server | None = None,
    use_bps: Mapping[str, float] | None = None,
) -> Recommender:
    """Return a new recommender of this name; settings: arguments of its class such as stop_below.

    server, use_bps: the parameter server and how much of its bandwidth one worker uses, by type, bit/s.

    Raises ScenarioError for an unknown name, or without a server for a method that needs one.
    """
    method = RECOMMENDERS.get(name)
    if method is None:
        raise ScenarioError(f"no recommender {name!r}; there are {', '.join(METHODS)}")
    factory = resolve_name(f"{__name__}.{method.factory}")
    if method.needs_server and server is None:
        raise ScenarioError(f"{name} is for clusters with a parameter server; name its type with --server")
    made: Recommender = factory(server, use_bps or {}) if method.needs_server else factory(**(settings or {}))
    return made


def choose(
    name: str, request: Request, *, server: Server | None = None, use_bps: Mapping[str, float] | None = None
) -> Recommender:
    """Return the recommender of this name, or the analytic model in its place. Errors are those of `make`.

    Without trials and past jobs that have enough runs, transfer has nothing to learn from. If the analytic
    model then knows the time on any candidate, `analytic` replaces `transfer`; it ranks only the candidates
    whose time it knows.
    """
    known = request.expected_s
    if name == "transfer" and not len(request.observed) and known is not None:
        from control.recommender.prior import usable_jobs

        untaught = request.history is None or not usable_jobs(request.history).size
        name = "analytic" if untaught and bool((known < float("inf")).any()) else name
    return make(name, server=server, use_bps=use_bps)
