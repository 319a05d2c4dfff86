"""Runs beside each other: one row per run, one per policy over its seeds, and what to mind when reading.

For: the table of `whatif`, `run`, `compare`, the report and the explorer. Not for: the figures
themselves (lab.containers.metrics) or how they are written out (lab.runs.formats). Reads runs and nothing
else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lab.containers.metrics import GIB, METRICS, MIB, OF_REQUESTS, Metric
from lab.fabric import compare as fabrics
from lab.runs.formats import Column, Record, Result, Value
from lab.runs.intervals import mean_ci95
from lab.runs.labels import labels
from lab.runs.store import Run
from twinbed import StoreError

_LEGEND = (
    "Lower is better in every line{but}, but the lines pull against each other: slack is what is reserved "
    "and not used, {cost} is what too little slack costs."
)
_HEAD = ("label", "run", "name", "policy", "seed", "currency")
_MOST_FACTS = 3
_FAILED_WORTH_A_WORD = 0.01
_FATES = {
    "pending": "not ended when the run ended",
    "timed_out": "given up by their client",
    "dropped": "turned away, because a queue was full",
    "failed": "lost, because a call failed or a container was killed, restarted or down",
}
"""What becomes of a request, by status in the requests table."""
_OVERLOADED = ("dropped", "pending")
"""What becomes of requests where more is asked than can be served."""
_BRISK_S = (1, 2, 5, 10, 20, 30, 60)
"""Update intervals to propose to who has a short trace, seconds."""
_SECTIONS = {
    **dict.fromkeys(OF_REQUESTS, "requests"),
    "cpu_slack_p50_cores": "slack",
    "cpu_slack_p80_cores": "slack",
    "cpu_slack_p99_cores": "slack",
    "memory_slack_p50_mib": "slack",
    "memory_slack_p80_mib": "slack",
    "memory_slack_p99_mib": "slack",
    "throttled_share": "cpu",
    "lateness_p50_s": "cpu",
    "lateness_p99_s": "cpu",
    "undone_core_s": "cpu",
    "oom_kills": "events",
    "oom_events": "events",
    "restarts": "events",
    "limit_changes_per_s": "events",
}


def comparison(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run, in the order given.

    Columns: label (what tells this run's policy and conditions from the others'), run (id), name, policy,
    seed, currency, and every key of lab.containers.metrics.METRICS (NaN where it has no meaning for the run).
    Raises StoreError for no runs, and for a run that is given twice.
    """
    _check(runs)
    rows = [
        {
            "label": label,
            "run": run.id,
            "name": run.manifest["name"],
            "policy": run.policy,
            "seed": run.seed,
            "currency": _price(run)["currency"],
        }
        | {metric.key: run.metrics.get(metric.key, math.nan) for metric in METRICS}
        for run, label in zip(runs, labels(runs), strict=True)
    ]
    return pd.DataFrame(rows, columns=[*_HEAD, *(metric.key for metric in METRICS)])


def over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per label of a `comparison`, in order of appearance: means over its seeds.

    Columns: label, runs (ids, space-separated), name, policy, seeds (their number), currency, and per metric
    KEY (mean over the seeds where it is defined) and KEY_ci95 (half-width of the 95 % confidence interval
    of that mean by Student's t; NaN with fewer than two values).
    """
    rows = []
    for label, group in frame.groupby("label", sort=False):
        row: dict[str, Any] = {
            "label": label,
            "runs": " ".join(group["run"]),
            "name": group["name"].iloc[0],
            "policy": group["policy"].iloc[0],
            "seeds": len(group),
            "currency": group["currency"].iloc[0],
        }
        for metric in METRICS:
            row[metric.key], row[f"{metric.key}_ci95"] = mean_ci95(group[metric.key].dropna().to_numpy())
        rows.append(row)
    return pd.DataFrame(rows)


def as_result(runs: Sequence[Run]) -> Result:
    """The comparison ready to be written: quantities by policy, legend, remarks, notes, price, run ids.

    Of runs of fabrics, lab.fabric.compare's.
    """
    if any(run.of_fabric for run in runs):
        return fabrics.as_result(runs)
    frame = comparison(runs)
    repeated = bool(frame["label"].duplicated().any())
    shown = over_seeds(frame) if repeated else frame
    heads = ("label", "runs", "name", "policy", "seeds", "currency") if repeated else _HEAD
    rows = tuple({str(key): _plain(value) for key, value in row.items()} for row in shown.to_dict("records"))
    columns = [Column(key, key.capitalize()) for key in heads]
    currencies = sorted(set(frame["currency"]))
    columns += [_column(metric, "/".join(currencies), repeated=repeated) for metric in METRICS]
    notes = [*remarks(runs), *notes_of(runs)]
    if repeated:
        notes.append("A ± B: mean over the seeds, and half its 95 % confidence interval (Student's t).")
    notes.append(f"Runs: {', '.join(frame['run'])}.")
    return Result(tuple(columns), rows, facts(runs), legend(runs), tuple(notes), aside="label")


def legend(runs: Sequence[Run]) -> str:
    """How to read the table of these runs, in a line."""
    if any("requests" in run.tables for run in runs):
        return _LEGEND.format(but=" except throughput", cost="latency")
    return _LEGEND.format(but="", cost="delayed work")


def facts(runs: Sequence[Run]) -> Record:
    """What the runs are about, for the lines above a table; what differs between them is listed."""
    if runs[0].of_fabric:
        return fabrics.facts(runs)
    found = {
        "workload": [_workload_text(run) for run in runs],
        "requests": [_requests_text(run) for run in runs if "requests" in run.tables],
        "global limits": [_limits_text(run) for run in runs],
        "seed": [str(run.seed) for run in runs],
        "machine": [_machine_text(run) for run in runs],
    }
    return {key: _listed(texts, ", " if key == "seed" else "; ") for key, texts in found.items() if texts}


def notes_of(runs: Sequence[Run]) -> list[str]:
    """What was done to the data, once each, and the price with its source."""
    if runs[0].of_fabric:
        return fabrics.notes_of(runs)
    prices = _unique(_price_text(_price(run)) for run in runs)
    return [*_unique(note for run in runs for note in run.manifest["notes"]), *prices]


def remarks(runs: Sequence[Run]) -> list[str]:
    """What a careful colleague would say about these runs before the table is believed; may be empty.

    Pure: depends on the runs alone. Says what makes runs not comparable, which policy never acted and how to
    let it, where containers were killed, and why requests were not answered. Of runs of fabrics, nothing.
    """
    if runs[0].of_fabric:
        return []
    found = _not_comparable(runs)
    for text in _unique(run.policy for run in runs):
        same = [run for run in runs if run.policy == text]
        found += _never_acted(same[0])
        found += _never_gives_back(same[0])
        found += _killed(same)
    return found + _unanswered(runs)


def _check(runs: Sequence[Run]) -> None:
    if not runs:
        raise StoreError("no runs to compare")
    seen: set[str] = set()
    for run in runs:
        if run.id in seen:
            raise StoreError(f"run {run.id} is given twice")
        seen.add(run.id)


def _column(metric: Metric, currency: str, *, repeated: bool) -> Column:
    return Column(
        metric.key,
        metric.title,
        currency if metric.unit == "currency" else metric.unit,
        # The mean of a count over seeds is no count.
        max(metric.decimals, 1) if repeated else metric.decimals,
        percent=metric.key.endswith("_share"),
        spread=f"{metric.key}_ci95" if repeated else "",
        section=_SECTIONS.get(metric.key, "reserved"),
    )


def _not_comparable(runs: Sequence[Run]) -> list[str]:
    """Differences in what a comparison of policies takes to be the same."""
    shared = {
        "workloads": {_asked(run) for run in runs},
        "prices": {json.dumps(_price(run), sort_keys=True) for run in runs},
        "calibrations": {run.manifest["calibration"]["sha256"] for run in runs},
        "versions of twinbed": {run.manifest["versions"]["twinbed"] for run in runs},
        "global limits": {json.dumps(run.manifest["workload"]["applications"]) for run in runs},
    }
    different = [what for what, values in shared.items() if len(values) > 1]
    # Refinement draws each seed's peaks anew, so limits derived from them differ between seeds.
    if len({run.seed for run in runs}) > 1 and "global limits" in different:
        different.remove("global limits")
    if not different:
        return []
    return [
        f"These runs have different {' and '.join(different)}: differences between them are not the "
        "policies' alone."
    ]


def _never_acted(run: Run) -> list[str]:
    """A recommender that changed nothing was never more than its first guess: why, and how to let it act."""
    policy = run.manifest["spec"]["policy"]
    every_s = policy["parameters"].get("update_interval_s")
    if not isinstance(every_s, int | float) or run.metrics["limit_changes_per_s"] > 0:
        return []
    lasted_s = _duration_s(run)
    if every_s < lasted_s:
        kept = f"{run.policy} changed no limit: it kept its initial {_initial(policy)}."
        why = " Its bounds are wide while its history is short; they narrow over days."
        return [kept + (why if policy["name"] == "vpa" else "")]
    quicker = max((each for each in _BRISK_S if each <= lasted_s / 15), default=_BRISK_S[0])
    return [
        f"{run.policy} updates every {every_s:g} s and the trace is {lasted_s:g} s long: it never updated "
        f"and kept its initial {_initial(policy)}. Try --policy {policy['name']}:update_interval_s={quicker}."
    ]


def _never_gives_back(run: Run) -> list[str]:
    """Escra lowers a limit only when more than γ is unused, which nobody can have who starts with less."""
    gamma = run.manifest["spec"]["policy"]["parameters"].get("gamma")
    if gamma is None:
        return []
    members = run.frame("containers", ["app"])["app"].value_counts()
    limits = {each["name"]: each["cpu_limit_cores"] for each in run.manifest["workload"]["applications"]}
    share = min(limit / members[name] for name, limit in limits.items())
    if share > gamma:
        return []
    return [
        f"{run.policy} starts every container with an equal share, {share:.3g} cores here, and takes back "
        f"only what is unused beyond gamma = {gamma:g} cores: nobody can give anything back, so the pool "
        f"stays empty. Try --policy escra:gamma={share / 10:.1g}."
    ]


def _initial(policy: Mapping[str, Any]) -> str:
    factor = policy["parameters"].get("initial_factor")
    return "limits" if factor is None else f"limits of {factor:g} × the profiled peak"


def _killed(runs: Sequence[Run]) -> list[str]:
    """Which containers were killed, and how often; the counts of several seeds are added up."""
    tables = [run.frame("containers", ["container", "oom_kills"]) for run in runs]
    counts = pd.concat(tables).groupby("container", sort=False)["oom_kills"].sum()
    killed = counts[counts > 0].sort_values(ascending=False, kind="stable")
    if killed.empty:
        return []
    shown = ", ".join(f"{name} {count:.0f}×" for name, count in killed.head(3).items())
    more = f" and {len(killed) - 3} more" if len(killed) > 3 else ""
    return [f"{runs[0].policy} had containers killed for memory: {shown}{more}."]


def _unanswered(runs: Sequence[Run]) -> list[str]:
    """Runs in which clients got too few answers, the worst of each policy: what became of the requests."""
    worst: dict[str, tuple[float, str, Run]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        share = run.metrics["failed_share"] if "requests" in run.tables else 0.0
        if share > max(_FAILED_WORTH_A_WORD, worst.get(run.policy, (0.0,))[0]):
            worst[run.policy] = (share, label, run)
    return [_why_unanswered(*each) for each in worst.values()]


def _why_unanswered(share: float, label: str, run: Run) -> str:
    statuses = run.frame("requests", ["status"])["status"].value_counts().drop("ok", errors="ignore")
    main = str(statuses.index[0])
    text = f"{label} left {100 * share:.1f} % of the requests without an answer"
    text += f"; most of these were {_FATES[main]}."
    if main not in _OVERLOADED:
        return text
    away = run.frame("containers", ["container", "turned_away"]).nlargest(1, "turned_away")
    at = f" {away['container'].iloc[0]}" if away["turned_away"].iloc[0] > 0 else " it"
    return f"{text} So{at} was saturated: more was asked than its limits or its host could serve."


def _asked(run: Run) -> str:
    """What tells a run's workload from another's."""
    contents = [each["sha256"] for each in run.manifest["inputs"]]
    return json.dumps([contents, run.manifest["spec"].get("services")], sort_keys=True)


def _price(run: Run) -> dict[str, Any]:
    price: dict[str, Any] = run.manifest["spec"]["price"]
    return price


def _price_text(price: Mapping[str, Any]) -> str:
    as_of = f", as of {price['as_of']}" if price.get("as_of") else ""
    return (
        f"Price: {price['cpu_core_hour']:g} {price['currency']} per core-hour and "
        f"{price['memory_gib_hour']:g} per GiB-hour reserved ({price['source']}{as_of})."
    )


def _listed(texts: Iterable[str], between: str) -> str:
    """What differs, once each; of many, the first few."""
    different = _unique(texts)
    more = len(different) - _MOST_FACTS
    shown = different if more <= 1 or between == ", " else [*different[:_MOST_FACTS], f"and {more} more"]
    return between.join(shown)


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
    """Ω and M summed over applications, and where they come from."""
    applications = run.manifest["workload"]["applications"]
    cores = sum(each["cpu_limit_cores"] for each in applications)
    held = sum(each["memory_limit_bytes"] for each in applications)
    memory = f"{held / GIB:,.2f} GiB" if held >= GIB else f"{held / MIB:,.1f} MiB"
    if math.isnan(run.metrics["reserved_gib_h"]):
        memory = "memory unknown"
    spec = run.manifest["spec"]
    why = "given" if spec.get("budget") else f"{spec['budget_factor']:g} × the profiled peaks"
    each = " in all" if len(applications) > 1 else ""
    return f"{cores:,.2f} cores, {memory}{each} ({why})"


def _machine_text(run: Run) -> str:
    if run.manifest["backend"] == "testbed":
        machine = run.manifest["testbed"]["machine"]
        return f"testbed: {machine['cpus']} CPUs ({machine['cpu_model']}), {machine['kernel']}"
    calibration = run.manifest["calibration"]
    workload = run.manifest["workload"]
    hosts = f"{workload['hosts']} hosts of {workload['host_cores']:g} cores" if "hosts" in workload else ""
    hosts = hosts or f"{workload['host_cores']:g}-core hosts"
    return f"{hosts}, calibration {calibration['name']} of {calibration['date']}"


def _duration_s(run: Run) -> float:
    workload = run.manifest["workload"]
    return float(round(workload["periods"] * workload["period_s"], 9))


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _plain(value: Any) -> Value:
    """A NumPy scalar as its Python type."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
