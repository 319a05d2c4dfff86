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
from studies.experiments.model import Experiment, Figure, Measure, figures

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
    """Pick the runs of a policy, or those on one application under one workload."""
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
    name="E2",
    title="Escra against Static 1.5× and Autopilot on 4 applications × 4 workloads",
    scenario="E2.yaml",
    method=(
        "Percent by which Escra's figure differs from the baseline's on the same application, workload and "
        "seed: the mean over the sixteen, then mean and interval over the seeds. Throughput counts answered "
        "requests. Latency counts all: one that was never answered is later than every answer. Slack is over "
        "container-periods. Autopilot's histories begin with the profile."
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
        *_largest(),
        *_typical(),
    ),
    discussion=(
        "Latency and throughput against static limits are not reproduced, and this set-up cannot reproduce "
        "them. The profile is of the same workload, so 1.5 times its peaks hardly throttle any container and "
        "leave nothing to gain. Escra keeps limits just above the use and learns of a need from a throttled "
        "period. It pays for its smaller reservation with two to three times the p99.9 in the applications "
        "whose requests are all answered. The source says the same of an ideal profile. It explains its "
        "gain by "
        "profiles that miss the load and by tools that average spikes away. E2-profiling shows the effect of "
        "averaging alone; but Ω is made of the same peaks, so Escra suffers with the baseline.",
        "Throughput: arrivals are an open loop and clients wait. A policy that keeps up answers everything, "
        "so throughput differs only where a policy fails. Static limits do not fail here. Autopilot does: it "
        "fits memory closely, containers are killed and restarted, and their requests are lost. How many are "
        "lost differs so much between seeds that the mean over all cells says nothing.",
        "MediaMicroservice starves under Escra, and this alone decides the means of latency; "
        "medians and single applications are in the table, too. Its 32 containers share an Ω of 3 to 6 "
        "cores. An equal share of about 0.1 core is below γ = 0.2 core, and Escra takes back only what is "
        "unused beyond γ. So no container gives anything back, the pool stays empty, and the busy containers "
        "stay at their share (docs/decisions/0008). With γ = 0.05 core, or with four times our CPU demands, "
        "no container starves, and Escra's p99.9 is about a third below Autopilot's. With the cluster's "
        "cores as Ω none starves either (E2-source). The source prints γ without a unit. Its containers "
        "must have used far more CPU than ours: its static limits leave 2.5 "
        "cores unused in the median.",
        "The same small containers decide the median of CPU slack. Ours use some hundredths of a core, and "
        "1.5 times that is less than Escra leaves to every container (up to γ). The 99th percentile, which "
        "the busy containers decide, is reproduced. Median memory slack against Autopilot has the other "
        "sign, because our Autopilot keeps memory tighter than Escra's δ = 50 MiB, and its containers are "
        "killed for it.",
        "Against Autopilot, the means depend most on what a kill costs (a restart of 10 s instead of 2 s) "
        "and on the weights that the source does not give. The median over all cells is lower under "
        "Escra. In "
        "the one workload of the table below, unanswered requests leave its sign open under most changes.",
    ),
    sensitivity=(*MICROSERVICES, *ESCRA, *ESCRA_MEMORY, *AUTOPILOT, *TO_SOURCE),
    sensitivity_part=PART,
)

E2_SOURCE = Experiment(
    name="E2-source",
    title="The same with one profile for all workloads, start-ups in it, and the cluster's cores as Ω",
    scenario="E2-source.yaml",
    method=(
        "As E2, with the source's set-up as far as it is stated. The application is profiled once, under "
        "Fixed, and its limits serve all four workloads. The profile begins with the start of every "
        "container, which takes 2 s of CPU time (restart_s, all of it CPU) on all of its threads. Ω is what "
        "the cluster has, 3 hosts of 20 cores. Static limits may add up to more, as in Kubernetes. M stays "
        "1.5 times the profiled peaks. Which workload the source profiled, and what its containers burn at "
        "their start, is not printed."
    ),
    figures=(
        *_means(AS_SOURCE),
        _single("media_microservice", "burst", "latency_p999", against="autopilot"),
        _single("media_microservice", "burst", "throughput", against="autopilot"),
        *_largest(AS_SOURCE),
    ),
    discussion=(
        "Ω/k is 1.9 cores in MediaMicroservice and 0.9 in TrainTicket, far above γ = 0.2 core. So every "
        "container begins with more than Escra leaves unused, gives the rest back, and the pool fills: no "
        "application starves by construction.",
        "The table below undoes one assumption at a time and so shows its effect. The same assumptions are "
        "added to E2 one at a time in E2's own table. Start-ups in the profile have the largest effect: they "
        "give static limits the slack that the source prints, and a p99.9 that Escra does not reach.",
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
        *(_overall("cpu", quantile) for quantile in ("p50", "p80", "p99")),
        *(_overall("memory", quantile) for quantile in ("p50", "p99")),
    ),
    discussion=(
        "CPU slack follows γ. Escra cuts a limit until no more than γ is unused, so the median lies below γ "
        "and moves in proportion to it; CPU demands and Υ move it much less. That it agrees with the source "
        "supports the reading of γ as 0.2 core. A p80 of 0.35 core needs containers that are busier, and "
        "vary more, than our HipsterShop's.",
        "Memory: the source's 46 to 49 MiB are a little less than δ = 50 MiB, which is the slack of "
        "containers that a reclaim has cut. TrainTicket's containers here are larger than their initial "
        "share and grow by grants of 16 MiB (our assumption for the source's fixed number of pages). A "
        "reclaim cuts only what exceeds δ, so their slack lies anywhere below it. The 99th percentile "
        "includes the seconds before the first reclaim.",
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
    name="E8",
    title="Out-of-memory kills",
    scenario="E8.yaml",
    method=(
        "Kills in E2's runs: of Escra in all runs together, of Autopilot the most in one run; then the mean "
        "over the seeds. The source's 32 experiments are read as 16 with each of the two baselines."
    ),
    figures=_E8,
    discussion=(
        "Escra's few kills follow from its rules. They happen when the application's whole memory limit is "
        "given out and no container holds more than δ = 50 MiB too much. A reclaim then frees nothing, "
        "although a third of the limit lies unused in slacks below δ. Small containers (24 to 80 MiB in "
        "HipsterShop) make that likely; a larger M or a smaller δ prevents it.",
        "Autopilot's containers are killed an order of magnitude more often than in the source. It begins "
        "with its recommendations after the profile, and lowers limits to the use of the last seconds. "
        "Caches that fill and bursts that queue need more later, and a killed container begins again with "
        "empty caches. The count depends on Autopilot's weights, which the source does not give, on how "
        "long a restart takes, and on memory per request.",
    ),
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
    name="E2-profiling",
    title="Static limits of 0.75, 1 and 1.5 × peaks profiled over 0.1 to 10 s",
    scenario="E2-profiling.yaml",
    method=(
        "MediaMicroservice under Exponential and Burst. A limit is a factor times the largest mean over the "
        "profiling interval in a run without limits, under the same workload with another seed. Figures are "
        "means over the workloads."
    ),
    discussion=(
        "Averaging hides spikes. At 1.5 times the peak, p99.9 is ten times larger if the peak was read over "
        "1 s instead of 0.1 s, and four times larger again over 10 s, with less and less CPU reserved.",
        "At 0.75 and 1 times the peak memory decides, because a factor scales it like CPU. An idle process "
        "is most of its peak: at 0.75 no container survives, and at 1.0 a container that needs a little more "
        "than in the profiling run is killed again and again. Latencies there are those of the few requests "
        "that were answered.",
    ),
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
    name="beyond",
    title="Escra beside Autothrottle, VPA with and without restarts, Autopilot and static limits",
    scenario="beyond.yaml",
    method=(
        "As E2, with every policy compared with Escra on the same application, workload and seed. Figures "
        "are means over two applications (HipsterShop, Teastore) under the four workloads."
    ),
    discussion=(
        "VPA, with limits of twice its requests, serves like static limits and reserves as much: nearly "
        "twice Escra's cores, for a lower median latency than Escra's. Its restarts lose requests and "
        "lengthen the tail; with resizing in place it loses fewer. Autopilot updates every second and fits "
        "memory closely: containers are killed, and with them requests.",
        "Autothrottle changes limits twenty times less often than Escra and reserves a quarter more CPU. Its "
        "containers have the same memory limits as static ones. Static ones are never killed, but its own "
        "are: its quotas let requests queue while its Tower still learns, and a queue takes memory.",
    ),
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
    name="duel",
    title="Escra beside CPU requests without CPU limits",
    scenario="requests_only.yaml",
    method=(
        "Two applications under two workloads on three hosts of 20, 3 and 2 cores each. The policies have "
        "their own defaults, requests-only is also run without memory limits, and all have the same "
        "global limits, load, profile and seeds. requests-only requests a "
        "percentile of the profiled use, which becomes the container's weight on a crowded host; it limits "
        "memory, but no CPU, and the global CPU limit does not bind it. The profile is made on the same "
        "hosts. The host sizes follow a probe of one seed, and the run without memory limits was added "
        "after requests-only had lost requests, to find out why. Figures are means over the two workloads."
    ),
    discussion=(
        "With room, limits gain nothing: Escra's limits throttle, and its p99 is eight to ten times that of "
        "requests-only on HipsterShop and more than twice on Teastore. Escra reserves more CPU on both "
        "applications, more memory on HipsterShop and a little less on Teastore. HipsterShop is not short of "
        "CPU on hosts of 2 cores either.",
        "Teastore under Burst is short of CPU on hosts of 3 and of 2 cores. Its queues then take more memory "
        "than in the profile. Escra grants that memory; requests-only's limit is the profiled peak and 15 %, "
        "so containers are killed, and with them requests. Without memory limits nothing is killed. Then "
        "Escra's median latency is still lower, and p99 cannot be told apart: both are lower bounds.",
        "On a real host of 2 cores (`scenarios/validation/requests_only.yaml`, HipsterShop, 12 s, two seeds, "
        "one repeat, other programs running) requests-only had a p50 of 0.010 and 0.016 s at 45 and 135 "
        "requests/s, Escra with a tenth of its γ 0.055 and 0.033 s. With its default γ, which is larger than "
        "what these containers use, Escra answered 23 and 42 requests/s. The twin has the same order in each "
        "of these.",
    ),
    figures=tuple(
        figure for app in ("hipster_shop", "teastore") for cores in _ON_HOSTS for figure in _duel(app, cores)
    ),
)
