"""The assumptions behind the experiments with microservices, as changes that are tried one at a time.

For: the `sensitivity` of E2, E3, E4 and E8. Not for: the experiments themselves (microservices.py, escra.py).
"""

from __future__ import annotations

from typing import Any

from studies.experiments.model import Change, Edit, changes


def demand(**settings: Any) -> Edit:
    """Return an edit that changes `distribution` or `cv` of every handler's CPU demand, but not its mean."""

    def of_handler(handler: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in handler.items() if key not in ("distribution", "cv")}
        return kept | settings

    def of_service(service: dict[str, Any]) -> dict[str, Any]:
        handlers = {name: of_handler(handler) for name, handler in service["handlers"].items()}
        return service | {"handlers": handlers}

    return lambda raw: raw | {"services": {name: of_service(own) for name, own in raw["services"].items()}}


def memory(factor: float) -> Edit:
    """Return an edit that multiplies every service's memory per request in flight."""

    def times(own: dict[str, Any]) -> dict[str, Any]:
        if "request_kib" not in own.get("memory", {}):
            return own
        return own | {"memory": own["memory"] | {"request_kib": own["memory"]["request_kib"] * factor}}

    return lambda raw: _settings(raw, times)


def at_most(key: str, largest: float) -> Edit:
    """Return an edit that caps every service's own value of a key (`threads`, `workers`, `queue`)."""
    return lambda raw: _settings(raw, lambda own: own | {key: min(own[key], largest)} if key in own else own)


def _settings(raw: dict[str, Any], edit: Edit) -> dict[str, Any]:
    """Edit `defaults` and every service in a copy, because YAML aliases share what they hold."""
    services = {name: edit(own) for name, own in raw["services"].items()}
    return raw | {"defaults": edit(raw.get("defaults", {})), "services": services}


PART = (
    "vary.services.app=[media_microservice, hipster_shop, teastore]",
    "vary.services.arrivals=[exponential]",
)
"""The part of the experiment on which changes are tried. The whole would be thousands of runs."""

MICROSERVICES: tuple[Change, ...] = (
    *changes(
        {
            "CPU demands ×0.5": "services.cpu_scale=0.5",
            "CPU demands ×2": "services.cpu_scale=2.0",
            "CPU demands ×4": "services.cpu_scale=4.0",
        }
    ),
    Change("CPU demands fixed", of_apps=demand(distribution="fixed")),
    Change("CPU demands lognormal cv=2", of_apps=demand(distribution="lognormal", cv=2.0)),
    Change("memory/request ×4", of_apps=memory(4)),
    Change("threads≤4", of_apps=at_most("threads", 4)),
    *changes(
        {
            "phases=1": "services.phases=1",
            "phases=10": "services.phases=10",
            "hosts=1": "services.hosts=1",
            "client timeout=1s": "services.client_timeout_s=1.0",
            "client connections=200": "services.connections=200",
            "Ω,M=2×peaks": "budget_factor=2.0",
            "Ω,M=3×peaks": "budget_factor=3.0",
            "profile=0.1s": "profile.interval_s=0.1",
            "profile=10s": "profile.interval_s=10.0",
            "restart=10s": "machine.restart_s=10.0",
            "network +10ms": "machine.network_delay_s=0.01",
        }
    ),
)
ESCRA = changes(
    {
        "γ=0.05": "escra.gamma=0.05",
        "γ=0.5": "escra.gamma=0.5",
        "Υ=10%": "escra.upsilon=10",
        "Υ=40%": "escra.upsilon=40",
        "window=10": "escra.window=10",
        "no guard": "escra.stale_mean_guard=false",
    }
)
ESCRA_MEMORY = changes(
    {
        "reclaim every 1s": "escra.reclaim_interval_s=1",
        "δ=16MiB": "escra.reclaim_margin_bytes=16777216",
        "grant=64MiB": "escra.grant_bytes=67108864",
        "σ=0.5": "escra.initial_memory=0.5",
    }
)
AUTOPILOT = changes(
    {
        "Autopilot moving_window": "autopilot.recommender=moving_window",
        "Autopilot overrun=100": "autopilot.overrun_weight=100",
        "Autopilot overrun=1": "autopilot.overrun_weight=1",
        "Autopilot memory_overrun=1000": "autopilot.memory_overrun_weight=1000",
        "Autopilot cold, from 0.25×peak": "profile.history=false autopilot.initial_factor=0.25",
        "Autopilot cold, from 1.5×peak": "profile.history=false autopilot.initial_factor=1.5",
    }
)

COLD_START = "profile.cold_start=true machine.restart_cpu_s=2.0"
TO_SOURCE = changes(
    {
        "profile: Fixed for all": "profile.arrivals=fixed",
        "profile with start-ups": COLD_START,
        "Ω=cluster's cores": "budget.cpu_cores=cluster",
        "cold histories": "profile.history=false",
    }
)
FROM_SOURCE = changes(
    {
        "profile of the same workload": "profile.arrivals=null",
        "profile without start-ups": "profile.cold_start=false",
        "Ω=1.5×peaks": "budget=null",
        "cold histories": "profile.history=false",
        "profile: Burst for all": "profile.arrivals=burst",
        "starts of 1s CPU": "machine.restart_cpu_s=1.0",
    }
)
"""The assumptions in which E2-source differs from E2, one at a time, and two that the source does not
state."""
