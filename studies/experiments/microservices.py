"""E2, E3, E8 and three questions of ours: Escra, Autopilot, static limits and others on four applications.

For: the definitions. Not for: how a figure is computed (measures.py), nor the assumptions that are changed
one at a time (assumptions.py). Source: the Escra chapter, sections 2.6.2 to 2.6.5, table 2.4, figures 2.5 to
2.7. None of the declared values was chosen by its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from studies.experiments.assumptions import (
    AUTOPILOT,
    ESCRA,
    ESCRA_MEMORY,
    FROM_SOURCE,
    MICROSERVICES,
    PART,
    TO_SOURCE,
)
from studies.experiments.measures import (
    Pick,
    change,
    largest,
    least_change,
    mean,
    median_change,
    most,
    percent,
    total,
)
from studies.experiments.model import Experiment, Figure, Measure, figures, written

BASELINES = {
    "static": ("static:factor=1.5", "Static 1.5×"),
    "autopilot": ("autopilot:update_interval_s=1", "Autopilot 1 s"),
}
"""Key → policy as in the scenario, and its name for people."""

AS_SOURCE = BASELINES | {"static": ("static:factor=1.5:overcommit=true", "Static 1.5×")}
"""The same if Ω is the cluster's: a profile with start-ups makes limits that add up to more than Ω."""

_STATIC, _AUTOPILOT = (policy for policy, _ in BASELINES.values())
APPS = ("media_microservice", "hipster_shop", "train_ticket", "teastore")
_COMPARED = {
    "latency_p999": ("latency_p999_s", "Latency p99.9"),
    "throughput": ("throughput_rps", "Throughput"),
    "cpu_slack_p50": ("cpu_slack_p50_cores", "CPU slack p50"),
    "cpu_slack_p99": ("cpu_slack_p99_cores", "CPU slack p99"),
    "memory_slack_p50": ("memory_slack_p50_mib", "Memory slack p50"),
    "memory_slack_p99": ("memory_slack_p99_mib", "Memory slack p99"),
}
"""Key → metric and title of the quantities that table 2.4 compares."""


def at(policy: str, app: str = "", arrivals: str = "") -> Pick:
    """Return the choice of a policy's runs: all, or those of one application or one kind of arrivals."""
    where = {"services.app": app, "services.arrivals": arrivals}
    return Pick(policy, {key: value for key, value in where.items() if value})


def _means(baselines: Mapping[str, tuple[str, str]] = BASELINES) -> Iterator[Figure]:
    for key, (policy, name) in baselines.items():
        for measured, (metric, title) in _COMPARED.items():
            moved = change(metric, at("escra"), at(policy))
            yield Figure(f"{key}_{measured}", f"{title}, Escra vs {name}", "%", 1, moved)


def _largest(baselines: Mapping[str, tuple[str, str]] = BASELINES) -> Iterator[Figure]:
    """Yield the largest effects in one of the experiments, against either baseline."""
    bases = [at(policy) for policy, _ in baselines.values()]
    rows = (
        ("throughput", "throughput_rps", lambda ours, theirs: ours / theirs),
        ("cpu_slack", "cpu_slack_p50_cores", lambda ours, theirs: theirs / ours),
        ("memory_slack", "memory_slack_p50_mib", lambda ours, theirs: theirs / ours),
    )
    cut = least_change("latency_p999_s", at("escra"), bases)
    yield Figure("largest_latency_p999", "Largest cut of latency p99.9", "%", 1, cut, detail=True)
    for key, metric, factor in rows:
        title = f"Largest factor of {key.replace('_', ' ').replace('cpu', 'CPU')}"
        yield Figure(
            f"largest_{key}", title, "×", 2, largest(metric, at("escra"), bases, factor), detail=True
        )


def _typical() -> Iterator[Figure]:
    """Yield medians over the sixteen cells, then means of one application. The source has neither."""
    some = list(_COMPARED.items())[:3]
    for key, (policy, name) in BASELINES.items():
        for measured, (metric, title) in some:
            moved = median_change(metric, at("escra"), at(policy))
            yield Figure(f"{key}_{measured}_median", f"{title}, Escra vs {name}, median", "%", 1, moved)
    for key, (policy, name) in BASELINES.items():
        for measured, (metric, title) in some:
            for app in APPS:
                text = f"{app}: {title}, Escra vs {name}"
                moved = change(metric, at("escra", app), at(policy, app))
                yield Figure(f"{key}_{measured}_{app}", text, "%", 1, moved, detail=True)


def _single(app: str, arrivals: str, measured: str, policy: str = "escra", against: str = "static") -> Figure:
    """Return a change in one of the sixteen cells. against: a key of BASELINES, or a policy."""
    metric, title = _COMPARED[measured]
    base = BASELINES.get(against, (against, ""))[0]
    return Figure(
        f"{app}_{arrivals.removesuffix('_like')}_{measured}",
        f"{app}, {arrivals}: {title.lower()}, {policy.split(':')[0].capitalize()} vs {against.capitalize()}",
        "%",
        1,
        change(metric, at(policy, app, arrivals), at(base, app, arrivals)),
        detail=True,
    )


def _slack(app: str, arrivals: str, metric: str, policy: str, key: str = "") -> Figure:
    """Return the definition of an absolute slack in one of the sixteen experiments."""
    quantity, quantile, unit = metric.split("_slack_")[0], *metric.rsplit("_", 2)[-2:]
    name = policy.split(":")[0].capitalize()
    return Figure(
        f"{app}_{arrivals}_{key}{quantity}_slack_{quantile}",
        f"{app}, {arrivals}: {quantity.replace('cpu', 'CPU')} slack {quantile}, {name}",
        "MiB" if unit == "mib" else "cores",
        1 if unit == "mib" else 3,
        mean(metric, at(policy, app, arrivals)),
        detail=bool(key),
    )


E2 = Experiment(
    **written("E2"),
    scenario="E2.yaml",
    figures=(
        *_means(),
        _single("train_ticket", "fixed", "throughput"),
        _slack("train_ticket", "fixed", "cpu_slack_p50_cores", _STATIC, "static_"),
        _slack("train_ticket", "fixed", "memory_slack_p50_mib", _STATIC, "static_"),
        _single("teastore", "alibaba_like", "latency_p999"),
        _single("teastore", "alibaba_like", "throughput"),
        _single("hipster_shop", "exponential", "throughput", _AUTOPILOT, "escra"),
        _slack("hipster_shop", "exponential", "cpu_slack_p50_cores", _AUTOPILOT, "autopilot_"),
        _single("media_microservice", "burst", "latency_p999", against="autopilot"),
        _single("media_microservice", "burst", "throughput", against="autopilot"),
        *_largest(),
        *_typical(),
    ),
    sensitivity=(*MICROSERVICES, *ESCRA, *ESCRA_MEMORY, *AUTOPILOT, *TO_SOURCE),
    sensitivity_part=PART,
)

E2_SOURCE = Experiment(
    **written("E2-source"),
    scenario="E2-source.yaml",
    figures=(
        *_means(AS_SOURCE),
        _single("media_microservice", "burst", "latency_p999", against="autopilot"),
        _single("media_microservice", "burst", "throughput", against="autopilot"),
        *_largest(AS_SOURCE),
    ),
    sensitivity=FROM_SOURCE,
    sensitivity_part=PART,
    references="E2",
)


def _overall(quantity: str, quantile: str) -> Figure:
    """Return a slack's mean over all sixteen experiments."""
    unit, decimals = ("cores", 3) if quantity == "cpu" else ("MiB", 1)
    title = f"all: {quantity.replace('cpu', 'CPU')} slack {quantile}, Escra"
    measure = mean(f"{quantity}_slack_{quantile}_{unit.lower()}", at("escra"))
    return Figure(f"{quantity}_slack_{quantile}", title, unit, decimals, measure)


E3 = Experiment(
    **written("E3"),
    scenario="E3.yaml",
    figures=(
        _slack("train_ticket", "fixed", "cpu_slack_p50_cores", "escra"),
        _slack("hipster_shop", "exponential", "cpu_slack_p50_cores", "escra"),
        _slack("hipster_shop", "exponential", "cpu_slack_p80_cores", "escra"),
        _slack("media_microservice", "burst", "cpu_slack_p99_cores", "escra"),
        _slack("train_ticket", "fixed", "memory_slack_p50_mib", "escra"),
        _slack("media_microservice", "burst", "memory_slack_p99_mib", "escra"),
        *(_overall("cpu", quantile) for quantile in ("p50", "p80", "p99")),
        *(_overall("memory", quantile) for quantile in ("p50", "p99")),
    ),
    sensitivity=(*MICROSERVICES, *ESCRA, *ESCRA_MEMORY),
    sensitivity_part=(
        "vary.services.app=[hipster_shop, train_ticket]",
        "vary.services.arrivals=[fixed, exponential]",
    ),
)

_E8 = figures(
    ("escra_kills", "Escra: kills in all runs", "1", 1, total("oom_kills", at("escra"))),
    ("autopilot_kills", "Autopilot 1 s: most kills in one run", "1", 1, most("oom_kills", at(_AUTOPILOT))),
    ("autopilot_all", "Autopilot 1 s: kills in all runs", "1", 1, total("oom_kills", at(_AUTOPILOT))),
    ("escra_held", "Escra: containers held for memory, all runs", "1", 1, total("oom_events", at("escra"))),
)  # fmt: skip

E8 = Experiment(
    **written("E8"),
    scenario="E8.yaml",
    figures=_E8,
    sensitivity=(*MICROSERVICES, *ESCRA_MEMORY, *AUTOPILOT),
    sensitivity_seeds=(0, 1, 2),
    sensitivity_part=("vary.services.app=[hipster_shop]", "vary.services.arrivals=[burst]"),
)

FACTORS = ("0.75", "1", "1.5")
PROFILED_S = (0.1, 1.0, 10.0)


def _profiled(factor: str, interval_s: float) -> tuple[Figure, ...]:
    pick = Pick(f"static:factor={factor}", {"profile.interval_s": interval_s})
    return figures(
        ("latency_p999", "Latency p99.9", "s", 3, mean("latency_p999_s", pick)),
        ("latency_p50", "Latency p50", "s", 4, mean("latency_p50_s", pick)),
        ("failed", "Requests not answered", "%", 2, percent("failed_share", pick)),
        ("throttled", "Throttled periods", "%", 2, percent("throttled_share", pick)),
        ("cpu_slack", "CPU slack p50", "cores", 3, mean("cpu_slack_p50_cores", pick)),
        ("reserved", "Reserved CPU", "cores", 2, mean("mean_reserved_cores", pick)),
        ("kills", "OOM kills, all workloads", "1", 1, total("oom_kills", pick)),
        aside=f"{factor}× {interval_s:g}s",
    )


PROFILING = Experiment(
    **written("E2-profiling"),
    scenario="E2-profiling.yaml",
    figures=tuple(
        figure for factor in FACTORS for interval_s in PROFILED_S for figure in _profiled(factor, interval_s)
    ),
)

POLICIES = (
    "escra",
    "autothrottle",
    "vpa",
    "vpa:update_mode=in_place_or_recreate",
    "autopilot:update_interval_s=1",
    "static:factor=1.5",
    "requests-only",
)


def policy_figures(policy: str, runs: int = 8) -> tuple[Figure, ...]:
    """Return the figures of a policy beside Escra. runs: number of its runs with one seed."""
    pick, escra = Pick(policy), Pick("escra")
    return figures(
        ("latency_p50", "Latency p50, vs Escra", "%", 1, change("latency_p50_s", pick, escra)),
        ("latency_p999", "Latency p99.9, vs Escra", "%", 1, change("latency_p999_s", pick, escra)),
        ("throughput", "Throughput, vs Escra", "%", 1, change("throughput_rps", pick, escra)),
        ("failed", "Requests not answered", "%", 2, percent("failed_share", pick)),
        ("throttled", "Throttled periods", "%", 2, percent("throttled_share", pick)),
        ("cpu_slack_p50", "CPU slack p50", "cores", 3, mean("cpu_slack_p50_cores", pick)),
        ("cpu_slack_p99", "CPU slack p99", "cores", 3, mean("cpu_slack_p99_cores", pick)),
        ("memory_slack_p50", "Memory slack p50", "MiB", 1, mean("memory_slack_p50_mib", pick)),
        ("reserved", "Reserved CPU", "cores", 2, mean("mean_reserved_cores", pick)),
        ("kills", f"OOM kills, all {runs} runs", "1", 1, total("oom_kills", pick)),
        ("restarts", f"Restarts, all {runs} runs", "1", 1, total("restarts", pick)),
        ("changes", "Limit changes", "1/s", 1, mean("limit_changes_per_s", pick)),
        ("taken_back", "Limit changes taken back", "1/s", 1, mean("taken_back_per_s", pick)),
        aside=policy,
    )


BEYOND = Experiment(
    **written("beyond"),
    scenario="beyond.yaml",
    figures=tuple(figure for policy in POLICIES for figure in policy_figures(policy)),
)

_RIVALS = {
    "escra": "Escra",
    "requests-only": "requests-only",
    "requests-only:memory_factor=0": "without memory limits",
}
_ON_HOSTS = (20.0, 3.0, 2.0)
"""Cores of each of the three hosts: room for every peak, then less and less."""


def _duel(app: str, cores: float) -> tuple[Figure, ...]:
    rows: list[tuple[str, str, str, int, Measure]] = []
    for policy, name in _RIVALS.items():
        pick = Pick(policy, {"services.app": app, "host_cores": cores})
        rows += [
            (f"latency_p50_{policy}", f"Latency p50, {name}", "s", 4, mean("latency_p50_s", pick)),
            (f"latency_p99_{policy}", f"Latency p99, {name}", "s", 3, mean("latency_p99_s", pick)),
            (f"failed_{policy}", f"Requests not answered, {name}", "%", 2, percent("failed_share", pick)),
            (f"reserved_{policy}", f"Reserved CPU, {name}", "cores", 2, mean("mean_reserved_cores", pick)),
            (f"memory_{policy}", f"Reserved memory, {name}", "MiB", 0, mean("mean_reserved_mib", pick)),
            (f"kills_{policy}", f"OOM kills, {name}, both runs", "1", 1, total("oom_kills", pick)),
        ]
    return figures(*rows, aside=f"{app}, {cores:g} cores")


DUEL = Experiment(
    **written("duel"),
    scenario="requests_only.yaml",
    figures=tuple(
        figure for app in ("hipster_shop", "teastore") for cores in _ON_HOSTS for figure in _duel(app, cores)
    ),
)
