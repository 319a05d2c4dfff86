"""E2, E3 and E8: Escra, Autopilot and static limits on four applications under four workloads.

For: the definitions; the three share their runs. Source: sections 2.6.3 to 2.6.5, table 2.4, figures 2.5 to
2.7. Not for: what is computed how (measures.py) or the assumptions varied (assumptions.py).
"""

from __future__ import annotations

from lab.experiments.assumptions import AUTOPILOT, ESCRA, ESCRA_MEMORY, MICROSERVICES, PART
from lab.experiments.measures import Pick, change, mean, median_change, most, total
from lab.experiments.model import Experiment, Figure

BASELINES = {
    "static": ("static:factor=1.5", "Static 1.5×"),
    "autopilot": ("autopilot:update_interval_s=1", "Autopilot 1 s"),
}
"""Key → policy as the scenario has it, and as people call it."""

APPS = ("media_microservice", "hipster_shop", "train_ticket", "teastore")

_MEASURED = (
    ("latency_p999", "latency_p999_s", "Latency p99.9"),
    ("throughput", "throughput_rps", "Throughput"),
    ("cpu_slack_p50", "cpu_slack_p50_cores", "CPU slack p50"),
    ("cpu_slack_p99", "cpu_slack_p99_cores", "CPU slack p99"),
    ("memory_slack_p50", "memory_slack_p50_mib", "Memory slack p50"),
    ("memory_slack_p99", "memory_slack_p99_mib", "Memory slack p99"),
)
"""Key, metric and title of what table 2.4 compares."""


def at(policy: str, app: str = "", arrivals: str = "") -> Pick:
    """The runs of a policy, or those on one application under one workload."""
    where = {"services.app": app, "services.arrivals": arrivals}
    return Pick(policy, {key: value for key, value in where.items() if value})


def _means() -> tuple[Figure, ...]:
    return tuple(
        Figure(
            f"{key}_{measured}", f"{title}, Escra vs {name}", "%", 1, change(metric, at("escra"), at(policy))
        )
        for key, (policy, name) in BASELINES.items()
        for measured, metric, title in _MEASURED
    )


def _typical() -> tuple[Figure, ...]:
    """Medians over the sixteen, and means over one application's four: the source has neither."""
    medians = tuple(
        Figure(
            f"{key}_{measured}_median",
            f"{title}, Escra vs {name}, median",
            "%",
            1,
            median_change(metric, at("escra"), at(policy)),
        )
        for key, (policy, name) in BASELINES.items()
        for measured, metric, title in _MEASURED[:3]
    )
    each = tuple(
        Figure(
            f"{key}_{measured}_{app}",
            f"{app}: {title}, Escra vs {name}",
            "%",
            1,
            change(metric, at("escra", app), at(policy, app)),
            detail=True,
        )
        for key, (policy, name) in BASELINES.items()
        for measured, metric, title in _MEASURED[:3]
        for app in APPS
    )
    return medians + each


def _single(app: str, arrivals: str, measured: str, policy: str = "escra", against: str = "static") -> Figure:
    """A change in one of the sixteen experiments."""
    metric, title = next((metric, title) for key, metric, title in _MEASURED if key == measured)
    of, base = at(policy, app, arrivals), at(BASELINES.get(against, (against, ""))[0], app, arrivals)
    names = [policy.split(":")[0].capitalize(), against.capitalize()]
    return Figure(
        f"{app}_{arrivals.removesuffix('_like')}_{measured}",
        f"{app}, {arrivals}: {title.lower()}, {' vs '.join(names)}",
        "%",
        1,
        change(metric, of, base),
        detail=True,
    )


def _slack(app: str, arrivals: str, metric: str, policy: str, key: str = "") -> Figure:
    """An absolute slack in one of the sixteen experiments."""
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


_STATIC, _AUTOPILOT = (policy for policy, _ in BASELINES.values())

E2 = Experiment(
    name="E2",
    title="Escra against Static 1.5× and Autopilot on 4 applications × 4 workloads",
    scenario="E2.yaml",
    method=(
        "Percent by which Escra's figure differs from the baseline's on the same application, workload and "
        "seed, mean over the sixteen; then mean and interval over the seeds. Throughput counts answered "
        "requests, latency those alone; slack is over container-periods."
    ),
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
        *_typical(),
    ),
    sensitivity=(*MICROSERVICES, *ESCRA, *ESCRA_MEMORY, *AUTOPILOT),
    sensitivity_part=PART,
)

E3 = Experiment(
    name="E3",
    title="Absolute slack with Escra",
    scenario="E3.yaml",
    method=(
        "Slack over container-periods with Escra, on the application and workload for which the source gives "
        "the figure, and the mean over all sixteen. The runs are E2's."
    ),
    figures=(
        _slack("train_ticket", "fixed", "cpu_slack_p50_cores", "escra"),
        _slack("hipster_shop", "exponential", "cpu_slack_p50_cores", "escra"),
        _slack("hipster_shop", "exponential", "cpu_slack_p80_cores", "escra"),
        _slack("media_microservice", "burst", "cpu_slack_p99_cores", "escra"),
        _slack("train_ticket", "fixed", "memory_slack_p50_mib", "escra"),
        _slack("media_microservice", "burst", "memory_slack_p99_mib", "escra"),
        Figure(
            "cpu_slack_p50",
            "all: CPU slack p50, Escra",
            "cores",
            3,
            mean("cpu_slack_p50_cores", at("escra")),
        ),
        Figure(
            "cpu_slack_p80",
            "all: CPU slack p80, Escra",
            "cores",
            3,
            mean("cpu_slack_p80_cores", at("escra")),
        ),
        Figure(
            "cpu_slack_p99",
            "all: CPU slack p99, Escra",
            "cores",
            3,
            mean("cpu_slack_p99_cores", at("escra")),
        ),
        Figure(
            "memory_slack_p50",
            "all: memory slack p50, Escra",
            "MiB",
            1,
            mean("memory_slack_p50_mib", at("escra")),
        ),
        Figure(
            "memory_slack_p99",
            "all: memory slack p99, Escra",
            "MiB",
            1,
            mean("memory_slack_p99_mib", at("escra")),
        ),
    ),
    sensitivity=(*MICROSERVICES, *ESCRA, *ESCRA_MEMORY),
    sensitivity_part=(
        "vary.services.app=[hipster_shop, train_ticket]",
        "vary.services.arrivals=[fixed, exponential]",
    ),
)

E8 = Experiment(
    name="E8",
    title="Out-of-memory kills",
    scenario="E8.yaml",
    method=(
        "Kills in E2's runs: of Escra all together, of Autopilot the most in one run; then mean over the "
        "seeds. The source's 32 experiments are read as the 16 of each of the two baselines."
    ),
    figures=(
        Figure("escra_kills", "Escra: kills in all runs", "1", 1, total("oom_kills", at("escra"))),
        Figure(
            "autopilot_kills",
            "Autopilot 1 s: most kills in one run",
            "1",
            1,
            most("oom_kills", at(_AUTOPILOT)),
        ),
        Figure(
            "autopilot_all", "Autopilot 1 s: kills in all runs", "1", 1, total("oom_kills", at(_AUTOPILOT))
        ),
        Figure(
            "escra_held",
            "Escra: containers held for memory, all runs",
            "1",
            1,
            total("oom_events", at("escra")),
        ),
    ),
    sensitivity=(*MICROSERVICES, *ESCRA_MEMORY, *AUTOPILOT),
    sensitivity_seeds=(0, 1, 2),
    sensitivity_part=("vary.services.app=[hipster_shop]", "vary.services.arrivals=[burst]"),
)
