"""Facts about container runs, and remarks that a reader needs before trusting their table.

For: the lines above and below every table of container runs. Not for: the table itself (lab.runs.compare).
Reads stored runs only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from lab.containers.input.sections import Price
from lab.containers.metrics import GIB, MIB, NO_MEMORY
from lab.containers.run.savings import base_of, conditions_key, savings
from lab.runs.formats import Record
from lab.runs.labels import labels
from lab.runs.store import Run

_LEGEND = (
    "Lower is better in every line{exception}, but the lines pull against each other: slack is "
    "reserved and not used, and {price} is the price of too little slack."
)
_MOST_FACTS = 3
"""Number of different texts of a fact that are shown before the rest is counted."""
_FAILED_WORTH_A_REMARK = 0.01
"""Share of requests without an answer above which a remark gives the reason."""
COLLAPSED = 0.1
"""Share of requests without an answer above which a policy has collapsed, if another answers more of them."""
_UP_ALIKE = 0.99
"""Share of the time for which others kept containers up, above which kills hardly change what is reserved."""
_FATES = {
    "pending": "not ended when the run ended",
    "timed_out": "given up by their client",
    "dropped": "turned away, because a queue was full",
    "failed": "lost, because a call failed or a container was killed, restarted or down",
}
"""The fate of a request, by its status in the table `requests`."""
_OVERLOADED = ("dropped", "pending")
"""Statuses of requests when the load exceeds the capacity."""
_BRISK_S = (1, 2, 5, 10, 20, 30, 60)
"""Update intervals to propose for a short trace, seconds."""


def legend(runs: Sequence[Run]) -> str:
    """Return how to read the table of these runs, in a line."""
    if any("requests" in run.tables for run in runs):
        return _LEGEND.format(exception=" except throughput", price="latency")
    return _LEGEND.format(exception="", price="delayed work")


def facts(runs: Sequence[Run]) -> Record:
    """Return the facts about the runs for the lines above a table, with every value that differs."""
    texts = {
        "workload": [_workload_text(run) for run in runs],
        "requests": [_requests_text(run) for run in runs if "requests" in run.tables],
        "series": [text for run in runs if (text := _series_text(run))],
        "global limits": [_limits_text(run) for run in runs],
        "given": [f"{run.policy}: {run.manifest['given']}" for run in runs if "given" in run.manifest],
        "seed": [str(run.seed) for run in runs],
        "machine": [_machine_text(run) for run in runs],
    }
    return {
        key: "; ".join(_unique(lines)) if key == "given" else _listed(lines, ", " if key == "seed" else "; ")
        for key, lines in texts.items()
        if lines
    }


def prices(runs: Sequence[Run]) -> list[str]:
    """Return the price and its source as a sentence, once for each price."""
    return _unique(Price.model_validate(price_of(run), strict=False).note for run in runs)


def remarks(runs: Sequence[Run]) -> list[str]:
    """Return a careful colleague's remarks on these runs; may be empty.

    The remarks name conditions that make runs not comparable, policies that never acted and a cure,
    containers that were killed, and the reasons for unanswered requests. They depend only on the runs.
    """
    texts = [*_not_comparable(runs), *_collapsed(runs)]
    for policy in _unique(run.policy for run in runs):
        same = [run for run in runs if run.policy == policy]
        texts += _never_acted(same[0])
        texts += _never_gives_back(same[0])
        texts += _killed(same, runs)
    return texts + _unanswered(runs) + _invented(runs)


def price_of(run: Run) -> dict[str, Any]:
    """Return the price in a run's conditions."""
    price: dict[str, Any] = run.manifest["spec"]["price"]
    return price


def _not_comparable(runs: Sequence[Run]) -> list[str]:
    """Return a remark on conditions that differ between the runs although a comparison of policies assumes
    that they are equal."""
    shared = {
        "workloads": {_workload_key(run) for run in runs},
        "prices": {json.dumps(price_of(run), sort_keys=True) for run in runs},
        "calibrations": {run.manifest["calibration"]["sha256"] for run in runs},
        "versions of twinbed": {run.manifest["versions"]["twinbed"] for run in runs},
        "global limits": {json.dumps(run.manifest["workload"]["applications"]) for run in runs},
    }
    different = [name for name, values in shared.items() if len(values) > 1]
    # Refinement draws each seed's peaks again, so limits derived from peaks differ between seeds.
    if len({run.seed for run in runs}) > 1 and "global limits" in different:
        different.remove("global limits")
    if not different:
        return []
    return [
        f"These runs have different {' and '.join(different)}: differences between them are not the "
        "policies' alone."
    ]


def _collapsed(runs: Sequence[Run]) -> list[str]:
    """Return a remark on the policies that collapsed where another policy served the same load."""
    loads: dict[str, list[Run]] = {}
    for run in runs:
        if "requests" in run.tables:
            loads.setdefault(f"{_workload_key(run)} {run.seed}", []).append(run)
    fallen = {
        run.policy: None
        for group in loads.values()
        if any(run.metrics["failed_share"] <= COLLAPSED for run in group)
        for run in group
        if run.metrics["failed_share"] > COLLAPSED
    }
    return [
        f"{policy} collapsed: it left more than {COLLAPSED:.0%} of the requests of a run unanswered, which "
        "another policy answered under the same load. Its slack and cost are those of a service that does "
        "not serve."
        for policy in fallen
    ]


def _never_acted(run: Run) -> list[str]:
    """Return a remark if a recommender changed nothing after its first estimate: the reason, and a cure."""
    policy = run.manifest["spec"]["policy"]
    every_s = policy["parameters"].get("update_interval_s")
    if not isinstance(every_s, int | float) or run.metrics["limit_changes_per_s"] > 0:
        return []
    if policy["parameters"].get("controlled_values") == "requests_only":
        return []
    lasted_s = _duration_s(run)
    if every_s < lasted_s:
        kept = f"{run.policy} changed no limit: it kept its initial {_initial(run)}."
        why = " Its bounds are wide while its history is short; they narrow over days."
        return [kept + (why if policy["name"] == "vpa" else "")]
    quicker = max((interval_s for interval_s in _BRISK_S if interval_s <= lasted_s / 15), default=_BRISK_S[0])
    return [
        f"{run.policy} updates every {every_s:g} s and the trace is {lasted_s:g} s long: it never updated "
        f"and kept its initial {_initial(run)}. Try {policy['name']}:update_interval_s={quicker}."
    ]


def _never_gives_back(run: Run) -> list[str]:
    """Return a remark if Escra cannot lower any limit. Escra lowers a limit only if more than γ is unused,
    and here no container starts with a limit above γ."""
    gamma = run.manifest["spec"]["policy"]["parameters"].get("gamma")
    if gamma is None:
        return []
    members = run.frame("containers", ["app"])["app"].value_counts()
    limits = {app["name"]: app["cpu_limit_cores"] for app in run.manifest["workload"]["applications"]}
    share = min(limit / members[name] for name, limit in limits.items())
    if share > gamma:
        return []
    return [
        f"{run.policy} starts every container with an equal share, {share:.3g} cores in this run, and takes "
        f"back only what is unused beyond gamma = {gamma:g} cores: no container can give anything back, so "
        f"the pool stays empty. Try escra:gamma={share / 10:.1g}."
    ]


def _initial(run: Run) -> str:
    if "warm history" in run.manifest.get("given", ""):
        return "limits, which it recommended from its history"
    parameters = run.manifest["spec"]["policy"]["parameters"]
    if "initial_factor" not in parameters:
        return "limits"
    factor = parameters["initial_factor"] * parameters.get("limit_ratio", 1.0)
    cut = ", or less where the global limits are short" if factor > 1 else ""
    return f"limits of {factor:g} × the profiled peak{cut}"


def _killed(runs: Sequence[Run], others: Sequence[Run]) -> list[str]:
    """Return a remark on which containers were killed, how often over all seeds, and whether they were down
    for long."""
    tables = [run.frame("containers", ["container", "oom_kills"]) for run in runs]
    counts = pd.concat(tables).groupby("container", sort=False)["oom_kills"].sum()
    killed = counts[counts > 0].sort_values(ascending=False, kind="stable")
    if killed.empty:
        return []
    shown = ", ".join(f"{name} {count:.0f}×" for name, count in killed.head(3).items())
    more = f" and {len(killed) - 3} more" if len(killed) > 3 else ""
    return [f"{runs[0].policy} had containers killed for memory: {shown}{more}.{_down(runs, others)}"]


def _down(runs: Sequence[Run], others: Sequence[Run]) -> str:
    """Return how long the containers of the worst run were up, beside the other policy that kept them up for
    longest; "" if about as long. The HPA and serverless platforms change the number of containers, too."""
    most: dict[str, tuple[float, str]] = {}
    for other in others:
        key, here = conditions_key(other), (other.metrics["mean_containers"], other.policy)
        most[key] = max(most.get(key, here), here)
    share, longer = 1.0, ""
    for run in runs:
        up, policy = most[conditions_key(run)]
        if up and not (run.manifest["spec"].get("hpa") or "requests" in run.tables):
            share, longer = min((share, longer), (run.metrics["mean_containers"] / up, policy))
    if share > _UP_ALIKE:
        return ""
    up_for = f"{share:.0%}".replace("%", " %")
    return (
        f" They were up for {up_for} of the time that they were up under {longer}, and reserve nothing while "
        "down: that is no saving."
    )


def _unanswered(runs: Sequence[Run]) -> list[str]:
    """Return a remark on the worst run of each policy whose clients got too few answers."""
    worst: dict[str, tuple[float, str, Run]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        share = run.metrics["failed_share"] if "requests" in run.tables else 0.0
        if share > max(_FAILED_WORTH_A_REMARK, worst.get(run.policy, (0.0,))[0]):
            worst[run.policy] = (share, label, run)
    return [_why_unanswered(share, label, run) for share, label, run in worst.values()]


def _why_unanswered(share: float, label: str, run: Run) -> str:
    statuses = run.frame("requests", ["status"])["status"].value_counts().drop("ok", errors="ignore")
    main = str(statuses.index[0])
    text = f"{label} left {100 * share:.1f} % of the requests without an answer"
    text += f"; most of these were {_FATES[main]}."
    if main not in _OVERLOADED:
        return text
    away = run.frame("containers", ["container", "turned_away"]).nlargest(1, "turned_away")
    place = f" {away['container'].iloc[0]}" if away["turned_away"].iloc[0] > 0 else " it"
    return f"{text} So{place} was saturated: more was asked than its limits or its host could serve."


def _invented(runs: Sequence[Run]) -> list[str]:
    """Return each policy's saving against static with and without refinement, or with each seed, if they
    differ; the smaller saving counts."""
    texts, base = [], base_of(runs)
    for label, saving in savings(runs, labels(runs)).items():
        low, high = _less(saving.low), _less(saving.high)
        each = low if low == high else f"{low} to {high}"
        if not math.isnan(saving.flat):
            texts.append(
                f"{label} reserves {_less(saving.counted)} CPU than {base}: {each} with samples refined by "
                f"a random model, {_less(saving.flat)} without. The smaller saving counts."
            )
        elif low != high:
            texts.append(f"{label} reserves {each} CPU than {base}, by the seed. The smaller saving counts.")
    return texts


def _less(change: float) -> str:
    """Return a relative change as `63 % less` or `5 % more`."""
    return f"{abs(change):.0%} {'more' if change > 0 else 'less'}".replace("%", " %")


def _workload_key(run: Run) -> str:
    """Return a key that identifies a run's workload."""
    contents = [source["sha256"] for source in run.manifest["inputs"]]
    return json.dumps([contents, run.manifest["spec"].get("services")], sort_keys=True)


def _listed(texts: Iterable[str], between: str) -> str:
    """Return the different texts; if there are many, the first few and how many more."""
    different = _unique(texts)
    more = len(different) - _MOST_FACTS
    shown = different if more <= 1 or between == ", " else [*different[:_MOST_FACTS], f"and {more} more"]
    return between.join(shown)


def _series_text(run: Run) -> str:
    """Return how coarse the stored series is, "" if it has every period."""
    workload = run.manifest["workload"]
    interval_s = workload.get("series_interval_s", workload["period_s"])
    if interval_s <= workload["period_s"]:
        return ""
    return f"means over {interval_s:g} s (all periods: --set series_interval_s={workload['period_s']:g})"


def _requests_text(run: Run) -> str:
    workload = run.manifest["workload"]
    return (
        f"{workload['requests']:,} to {workload['application']}, arrivals {workload['arrivals']}, "
        f"{_duration_s(run):,g} s"
    )


def _workload_text(run: Run) -> str:
    workload = run.manifest["workload"]
    count, periods = len(workload["containers"]), workload["periods"]
    containers = "1 container" if count == 1 else f"{count:,} containers"
    apps = len(workload["applications"])
    tenants = f" of {apps} applications" if apps > 1 else ""
    length = f"{_duration_s(run):,g} s in {periods:,} periods of {workload['period_s'] * 1000:g} ms"
    return f"{run.manifest['name']}: {containers}{tenants}, {length}"


def _limits_text(run: Run) -> str:
    """Return Ω and M, summed over applications, and where they come from."""
    applications = run.manifest["workload"]["applications"]
    cores = sum(app["cpu_limit_cores"] for app in applications)
    limit_bytes = sum(app["memory_limit_bytes"] for app in applications)
    memory = f"{limit_bytes / GIB:,.2f} GiB" if limit_bytes >= GIB else f"{limit_bytes / MIB:,.1f} MiB"
    if NO_MEMORY in run.manifest["notes"]:
        memory = "memory unknown"
    spec = run.manifest["spec"]
    origin = "given" if spec.get("budget") else f"{spec['budget_factor']:g} × the profiled peaks"
    in_all = " in all" if len(applications) > 1 else ""
    return f"{cores:,.2f} cores, {memory}{in_all} ({origin})"


def _machine_text(run: Run) -> str:
    if run.manifest["backend"] == "testbed":
        machine = run.manifest["testbed"]["machine"]
        return f"testbed: {machine['cpus']} CPUs ({machine['cpu_model']}), {machine['kernel']}"
    calibration = run.manifest["calibration"]
    workload = run.manifest["workload"]
    hosts = f"{workload['host_cores']:g}-core hosts"
    if count := workload.get("hosts"):
        hosts = f"{count} host{'s' * (count > 1)} of {workload['host_cores']:g} cores"
    return f"{hosts}, calibration {calibration['name']} of {calibration['date']}"


def _duration_s(run: Run) -> float:
    workload = run.manifest["workload"]
    return float(round(workload["periods"] * workload["period_s"], 9))


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
