"""E5: serverless functions with Escra, beside limits of the size that their owner asked for.

For: the definition. Not for: the functions (lab.containers.input.services.serverless). Source: the Escra
chapter, section 2.6.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lab.containers.input.services.serverless import FUNCTIONS
from studies.experiments.measures import Pick, change, difference, mean
from studies.experiments.model import Change, Experiment, Figure, changes, written

_IMAGE, _GRID = "image_process", "grid_search"
_ESCRA = {_IMAGE: "escra:upsilon=35", _GRID: "escra"}
"""The source raises Υ for short invocations and keeps the microservices' value for the batch."""


def _at(function: str, policy: str, budget_factor: float = 1.0) -> Pick:
    return Pick(policy, {"serverless.function": function, "budget_factor": budget_factor})


def _escra(function: str, budget_factor: float = 1.0) -> Pick:
    return _at(function, _ESCRA[function], budget_factor)


def _static(function: str) -> Pick:
    """Pick OpenWhisk's runs, in which every pod has the size that its owner asked for, all the time."""
    return _at(function, "static:factor=1")


def _functions(title: str, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Return a change that writes out and edits every function in the scenario."""

    def edited(raw: dict[str, Any]) -> dict[str, Any]:
        section = [
            entry | {"function": edit(FUNCTIONS[entry["function"]].model_dump())}
            for entry in raw["vary"]["serverless"]
        ]
        return raw | {"vary": raw["vary"] | {"serverless": section}}

    return Change(title, of_scenario=edited)


def _cpu(factor: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def scaled(part: dict[str, Any]) -> dict[str, Any]:
        return part if part["cpu_s"] is None else part | {"cpu_s": factor * part["cpu_s"]}

    return lambda function: function | {"parts": [scaled(part) for part in function["parts"]]}


def _pod(**settings: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda function: function | {"pod": function["pod"] | settings}


_QUANTITIES = {
    "latency": ("mean latency", "s", 2, "latency_mean_s"),
    "cores": ("CPU limit", "cores", 2, "mean_reserved_cores"),
    "memory": ("memory limit", "MiB", 0, "mean_reserved_mib"),
    "job": ("job", "s", 2, "makespan_s"),
}
"""Key → title, unit, decimals, metric. Limits are sums over pods."""

_MEASURED = ((_IMAGE, "latency"), (_IMAGE, "cores"), (_GRID, "cores"), (_GRID, "memory"), (_GRID, "job"))


def _figures() -> Iterator[Figure]:
    fewer = _escra(_GRID, 0.8)
    for function, key in _MEASURED:
        title, unit, decimals, metric = _QUANTITIES[key]
        for name, text, pick in (
            ("escra", "Escra", _escra(function)),
            ("static", "static", _static(function)),
        ):
            heading = f"{function}: {title}, {text}"
            yield Figure(f"{function}_{name}_{key}", heading, unit, decimals, mean(metric, pick))
    heading = f"{_GRID}: job, Escra with 20 % fewer"
    yield Figure(f"{_GRID}_fewer_job", heading, "s", 2, mean("makespan_s", fewer))
    saved = difference("mean_reserved_mib", _escra(_IMAGE), _static(_IMAGE))
    yield Figure(f"{_IMAGE}_memory", f"{_IMAGE}: memory limit, Escra minus static", "MiB", 0, saved)
    for function, key in _MEASURED:
        title, _, _, metric = _QUANTITIES[key]
        moved = change(metric, _escra(function), _static(function))
        yield Figure(f"{function}_{key}", f"{function}: {title}, Escra vs static", "%", 1, moved)
    moved = change("makespan_s", fewer, _static(_GRID))
    yield Figure(f"{_GRID}_fewer", f"{_GRID}: job, Escra with 20 % fewer vs static", "%", 1, moved)


E5 = Experiment(
    **written("E5"),
    scenario="E5.yaml",
    figures=tuple(_figures()),
    sensitivity=(
        _functions("CPU demands ×0.5", _cpu(0.5)),
        _functions("CPU demands ×2", _cpu(2.0)),
        _functions("pods start in 1s", _pod(start={"mean_s": 1.0, "cv": 0.3})),
        _functions("pods start in 10s", _pod(start={"mean_s": 10.0, "cv": 0.3})),
        _functions("idle pods stay 60s", _pod(keep_alive_s=60.0)),
        _functions("4 threads a pod", _pod(threads=4)),
        *changes(
            {
                "γ=0.05": "escra.gamma=0.05",
                "γ=0.5": "escra.gamma=0.5",
                "window=10": "escra.window=10",
                "reclaim every 1s": "escra.reclaim_interval_s=1",
                "period=50ms": "period_s=0.05",
                "network +10ms": "machine.network_delay_s=0.01",
            }
        ),
    ),
)
