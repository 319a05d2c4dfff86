"""The assumptions behind the microservice experiments, to be changed one at a time.

For: the list that E2, E3, E4, E6 and E8 share, and edits of application files. Not for: running them
(sensitivity.py). None of the declared values was chosen by its results.
"""

from __future__ import annotations

from typing import Any

from studies.experiments.model import Change, Edit


def demand(**given: Any) -> Edit:
    """Every handler's CPU demand drawn otherwise (`distribution`, `cv`), its mean kept."""

    def edit(raw: dict[str, Any]) -> dict[str, Any]:
        return _handlers(raw, lambda handler: {**_undrawn(handler), **given})

    return edit


def memory(factor: float) -> Edit:
    """Every service's memory per request in flight times `factor`."""

    def times(own: dict[str, Any]) -> dict[str, Any]:
        if "request_kib" not in own.get("memory", {}):
            return own
        return own | {"memory": own["memory"] | {"request_kib": own["memory"]["request_kib"] * factor}}

    return lambda raw: _settings(raw, times)


def at_most(key: str, most: float) -> Edit:
    """Every service's own value of a key (`threads`, `workers`, `queue`) capped."""
    return lambda raw: _settings(raw, lambda own: own | {key: min(own[key], most)} if key in own else own)


PART = (
    "vary.services.app=[media_microservice, hipster_shop, teastore]",
    "vary.services.arrivals=[exponential]",
)
"""What changes are tried on: all of the experiment under every change would be thousands of runs."""

MICROSERVICES: tuple[Change, ...] = (
    Change("CPU demands ×0.5", ("services.cpu_scale=0.5",)),
    Change("CPU demands ×2", ("services.cpu_scale=2.0",)),
    Change("CPU demands ×4", ("services.cpu_scale=4.0",)),
    Change("CPU demands fixed", of_apps=demand(distribution="fixed")),
    Change("CPU demands lognormal cv=2", of_apps=demand(distribution="lognormal", cv=2.0)),
    Change("memory/request ×4", of_apps=memory(4)),
    Change("threads≤4", of_apps=at_most("threads", 4)),
    Change("phases=1", ("services.phases=1",)),
    Change("phases=10", ("services.phases=10",)),
    Change("hosts=1", ("services.hosts=1",)),
    Change("client timeout=1s", ("services.client_timeout_s=1.0",)),
    Change("client connections=200", ("services.connections=200",)),
    Change("Ω,M=2×peaks", ("budget_factor=2.0",)),
    Change("Ω,M=3×peaks", ("budget_factor=3.0",)),
    Change("profile=0.1s", ("profile.interval_s=0.1",)),
    Change("profile=10s", ("profile.interval_s=10.0",)),
    Change("restart=10s", ("machine.restart_s=10.0",)),
    Change("network +10ms", ("machine.network_delay_s=0.01",)),
)

ESCRA: tuple[Change, ...] = (
    Change("γ=0.05", ("escra.gamma=0.05",)),
    Change("γ=0.5", ("escra.gamma=0.5",)),
    Change("Υ=10%", ("escra.upsilon=10",)),
    Change("Υ=40%", ("escra.upsilon=40",)),
    Change("window=10", ("escra.window=10",)),
    Change("no guard", ("escra.stale_mean_guard=false",)),
)

ESCRA_MEMORY: tuple[Change, ...] = (
    Change("reclaim every 1s", ("escra.reclaim_interval_s=1",)),
    Change("δ=16MiB", ("escra.reclaim_margin_bytes=16777216",)),
    Change("grant=64MiB", ("escra.grant_bytes=67108864",)),
    Change("σ=0.5", ("escra.initial_memory=0.5",)),
)

AUTOPILOT: tuple[Change, ...] = (
    Change("Autopilot moving_window", ("autopilot.recommender=moving_window",)),
    Change("Autopilot overrun=100", ("autopilot.overrun_weight=100",)),
    Change("Autopilot overrun=1", ("autopilot.overrun_weight=1",)),
    Change("Autopilot memory_overrun=1000", ("autopilot.memory_overrun_weight=1000",)),
    Change("Autopilot begins at 0.25×peak", ("autopilot.initial_factor=0.25",)),
    Change("Autopilot begins at 1.5×peak", ("autopilot.initial_factor=1.5",)),
)


def _handlers(raw: dict[str, Any], change: Edit) -> dict[str, Any]:
    def of(service: dict[str, Any]) -> dict[str, Any]:
        return service | {"handlers": {name: change(each) for name, each in service["handlers"].items()}}

    return raw | {"services": {name: of(each) for name, each in raw["services"].items()}}


def _settings(raw: dict[str, Any], change: Edit) -> dict[str, Any]:
    """`defaults` and every service changed; nothing in place, for YAML aliases share what they hold."""
    services = {name: change(each) for name, each in raw["services"].items()}
    return raw | {"defaults": change(raw.get("defaults", {})), "services": services}


def _undrawn(handler: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in handler.items() if key not in ("distribution", "cv")}
