"""E5: serverless functions with Escra and with the size their owner asked for. Source: section 2.6.7."""

from __future__ import annotations

from typing import Any

from lab.experiments.measures import Pick, change, difference, mean
from lab.experiments.model import Change, Edit, Experiment, Figure
from lab.services.serverless import FUNCTIONS

_ESCRA = {"image_process": "escra:upsilon=35", "grid_search": "escra"}
"""The source raises Υ for short invocations and keeps the microservices' for the batch."""

_OPENWHISK = "static:factor=1"
"""Every pod has what its owner asked for, all the time."""


def _at(function: str, policy: str, budget_factor: float = 1.0) -> Pick:
    return Pick(policy, {"serverless.function": function, "budget_factor": budget_factor})


def _escra(function: str, budget_factor: float = 1.0) -> Pick:
    return _at(function, _ESCRA[function], budget_factor)


def _static(function: str) -> Pick:
    return _at(function, _OPENWHISK)


_IMAGE, _GRID = "image_process", "grid_search"


def _functions(change: Edit) -> Edit:
    """An edit of the scenario that changes every function in it, written out."""

    def edited(raw: dict[str, Any]) -> dict[str, Any]:
        asked = [
            each | {"function": change(FUNCTIONS[each["function"]].model_dump())}
            for each in raw["vary"]["serverless"]
        ]
        return raw | {"vary": raw["vary"] | {"serverless": asked}}

    return edited


def _cpu(function: dict[str, Any], factor: float) -> dict[str, Any]:
    def scaled(part: dict[str, Any]) -> dict[str, Any]:
        return part if part["cpu_s"] is None else part | {"cpu_s": factor * part["cpu_s"]}

    return function | {"parts": [scaled(part) for part in function["parts"]]}


def _pod(function: dict[str, Any], **given: Any) -> dict[str, Any]:
    return function | {"pod": function["pod"] | given}


E5 = Experiment(
    name="E5",
    title="Serverless functions with Escra and with OpenWhisk's static size",
    scenario="E5.yaml",
    method=(
        "OpenWhisk alone is a static limit of what a pod asks for (1 core, 256 MiB); Ω and M are that times "
        "the pods that there may be at once (48 for ImageProcess, 115 for GridSearch), with 20 % fewer "
        "resources 0.8 of it. Υ is the source's: 35 for ImageProcess, 20 for GridSearch. Aggregate limits "
        "are sums over pods, mean over the run, pods that start included."
    ),
    figures=(
        Figure(
            "image_process_escra_latency",
            "ImageProcess: mean latency, Escra",
            "s",
            2,
            mean("latency_mean_s", _escra(_IMAGE)),
        ),
        Figure(
            "image_process_static_latency",
            "ImageProcess: mean latency, static",
            "s",
            2,
            mean("latency_mean_s", _static(_IMAGE)),
        ),
        Figure(
            "image_process_latency",
            "ImageProcess: mean latency, Escra vs static",
            "%",
            1,
            change("latency_mean_s", _escra(_IMAGE), _static(_IMAGE)),
        ),
        Figure(
            "image_process_escra_cores",
            "ImageProcess: aggregate CPU limit, Escra",
            "cores",
            2,
            mean("mean_reserved_cores", _escra(_IMAGE)),
        ),
        Figure(
            "image_process_static_cores",
            "ImageProcess: aggregate CPU limit, static",
            "cores",
            2,
            mean("mean_reserved_cores", _static(_IMAGE)),
        ),
        Figure(
            "image_process_cores",
            "ImageProcess: aggregate CPU limit, Escra vs static",
            "%",
            1,
            change("mean_reserved_cores", _escra(_IMAGE), _static(_IMAGE)),
        ),
        Figure(
            "image_process_memory",
            "ImageProcess: aggregate memory limit, Escra minus static",
            "MiB",
            0,
            difference("mean_reserved_mib", _escra(_IMAGE), _static(_IMAGE)),
        ),
        Figure(
            "grid_search_escra_cores",
            "GridSearch: aggregate CPU limit, Escra",
            "cores",
            1,
            mean("mean_reserved_cores", _escra(_GRID)),
        ),
        Figure(
            "grid_search_static_cores",
            "GridSearch: aggregate CPU limit, static",
            "cores",
            1,
            mean("mean_reserved_cores", _static(_GRID)),
        ),
        Figure(
            "grid_search_escra_memory",
            "GridSearch: aggregate memory limit, Escra",
            "MiB",
            0,
            mean("mean_reserved_mib", _escra(_GRID)),
        ),
        Figure(
            "grid_search_static_memory",
            "GridSearch: aggregate memory limit, static",
            "MiB",
            0,
            mean("mean_reserved_mib", _static(_GRID)),
        ),
        Figure("grid_search_escra_job", "GridSearch: job, Escra", "s", 1, mean("makespan_s", _escra(_GRID))),
        Figure(
            "grid_search_static_job", "GridSearch: job, static", "s", 1, mean("makespan_s", _static(_GRID))
        ),
        Figure(
            "grid_search_fewer_job",
            "GridSearch: job, Escra with 20 % fewer resources",
            "s",
            1,
            mean("makespan_s", _escra(_GRID, 0.8)),
        ),
        Figure(
            "grid_search_fewer",
            "GridSearch: job, Escra with 20 % fewer vs static",
            "%",
            1,
            change("makespan_s", _escra(_GRID, 0.8), _static(_GRID)),
        ),
    ),
    sensitivity=(
        Change("CPU demands ×0.5", of_scenario=_functions(lambda function: _cpu(function, 0.5))),
        Change("CPU demands ×2", of_scenario=_functions(lambda function: _cpu(function, 2.0))),
        Change(
            "pods start in 1s",
            of_scenario=_functions(lambda function: _pod(function, start={"mean_s": 1.0, "cv": 0.3})),
        ),
        Change(
            "pods start in 10s",
            of_scenario=_functions(lambda function: _pod(function, start={"mean_s": 10.0, "cv": 0.3})),
        ),
        Change(
            "idle pods stay 60s", of_scenario=_functions(lambda function: _pod(function, keep_alive_s=60.0))
        ),
        Change("4 threads a pod", of_scenario=_functions(lambda function: _pod(function, threads=4))),
        Change("γ=0.05", ("escra.gamma=0.05",)),
        Change("γ=0.5", ("escra.gamma=0.5",)),
        Change("window=10", ("escra.window=10",)),
        Change("reclaim every 1s", ("escra.reclaim_interval_s=1",)),
        Change("period=50ms", ("period_s=0.05",)),
        Change("network +10ms", ("machine.network_delay_s=0.01",)),
    ),
)
