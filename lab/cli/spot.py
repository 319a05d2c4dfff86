"""`twinbed spot`: the cost of a job with a deadline on spot machines under each policy.

For: the verb's options and its table. Not for: the comparison itself (lab.cloud.run.spot).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from control.market import POLICIES
from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, names_in, option, positive
from lab.runs.formats import Column, Result
from twinbed import ScenarioError

_COLUMNS = (
    Column("policy", "policy"), Column("cost_usd", "cost", "$", 2),
    Column("ratio", "times the optimum", "1", 3), Column("late", "late", decimals=0),
    Column("finish_h", "ends after", "h", 1), Column("spot_h", "spot", "h", 1),
    Column("on_demand_h", "on demand", "h", 1), Column("starts", "starts", "1", 1),
    Column("reasons", "why"),
)  # fmt: skip


def spot(
    trace: Annotated[
        list[Path], argument("TRACE…", "Availability by time (CSV: t_s, available), a file per zone.")
    ],
    work: Annotated[str, option("TIME", "Work of the job on one machine, e.g. 48h.")],
    deadline: Annotated[str, option("TIME", "Time from the start until it must be done.")],
    overhead: Annotated[str, option("TIME", "Time that every start of a machine takes.")] = "6m",
    policy: Annotated[
        str, option("NAME,…", f"Policies, comma-separated: {', '.join(POLICIES)}, or your own. Default: all.")
    ] = ",".join(POLICIES),
    on_demand: Annotated[float, option("USD", "Price on demand, $/h.", callback=positive)] = 3.06,
    spot_price: Annotated[float, option("USD", "Price of spot, $/h.", "--spot", callback=positive)] = 0.9731,
    tick: Annotated[str, option("TIME", "Time between decisions.")] = "10m",
    starts: Annotated[
        int, option("N", "Number of jobs, which start evenly over the trace.", min=1, max=10_000)
    ] = 30,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Compare policies for a job that must end by a deadline, on spot machines that may be taken away.

    Every policy is compared with the optimum, which knows the whole trace in advance. No shipped policy
    misses the deadline.
    """
    from control.market.ports import Terms
    from lab.ask.times import duration_s
    from lab.cli.progress import Bar
    from lab.cloud.run import spot as comparing

    times_s = (
        duration_s(work, "--work"),
        duration_s(deadline, "--deadline"),
        duration_s(overhead, "--overhead", zero=True),
        duration_s(tick, "--tick"),
    )
    try:
        terms = Terms(*times_s, on_demand)
    except ScenarioError as error:
        raise ScenarioError(f"--deadline {deadline}: {error}") from None
    names = list(dict.fromkeys(names_in(policy, "--policy")))
    market = comparing.windows(trace, terms, spot_price, starts)
    with Bar(len(names), wanted=not no_progress) as bar:
        rows = comparing.compare(names, terms, market, bar)
    share = float(market.available.any(axis=2).mean())
    told = form in (Format.TABLE, Format.MARKDOWN)  # a column of sentences would break names and figures
    emit(
        Result(
            _COLUMNS[: -1 if told else None],
            tuple(asdict(row) for row in rows),
            facts={
                "jobs": len(market.available),
                "spot there": f"throughout {share:.0%} of the ticks of {terms.tick_s:g} s from the jobs' "
                "starts to their deadlines",
            },
            legend="means of a job; late: jobs after the deadline; below: the commonest reasons of choices",
            notes=tuple(f"{row.policy}: {row.reasons}" for row in rows if row.reasons) if told else (),
        ),
        form,
    )
