"""Turns an application into the service graph that real containers run.

For: making a `ServiceApp` of an `AppSpec`, which is for the testbed what graph.py makes for the twin. Not
for: checking the text (application.py) nor starting anything (testbed.containers.services.deploy).
"""

from __future__ import annotations

from lab.containers.input.services.application import AppSpec, Call, Settings
from lab.containers.input.services.application import Handler as HandlerSpec
from testbed.containers.services import model

_KIB = 2**10
_MIB = 2**20


def service_app(app: AppSpec, cpu_scale: float = 1.0) -> model.ServiceApp:
    """Return the application as real containers run it; cpu_scale (≥ 0) multiplies every CPU demand.

    Services, handlers, calls and requests keep the order of the file, so kinds of requests and containers
    have the same numbers as in `compile_graph`. network_s is left out, because the network between
    containers is real.
    """
    return model.ServiceApp(
        name=app.name,
        services={name: _service(app, name, cpu_scale) for name in app.services},
        requests={name: request.handler for name, request in app.requests.items()},
    )


def _service(app: AppSpec, name: str, cpu_scale: float) -> model.Service:
    spec, settings = app.services[name], app.settings(name)
    memory = settings.memory
    return model.Service(
        handlers={key: _handler(handler, settings, cpu_scale) for key, handler in spec.handlers.items()},
        replicas=settings.replicas,
        threads=settings.threads,
        workers=settings.workers,
        queue=settings.queue,
        memory=model.Memory(
            base_bytes=round(memory.base_mib * _MIB),
            request_bytes=round(memory.request_kib * _KIB),
            cache_bytes=round(memory.cache_mib * _MIB),
            cache_request_bytes=round(memory.cache_request_kib * _KIB),
        ),
        connections=dict(spec.connections),
    )


def _handler(spec: HandlerSpec, settings: Settings, cpu_scale: float) -> model.Handler:
    return model.Handler(
        mean_s=spec.cpu_ms * 1e-3 * cpu_scale,
        draw=spec.distribution,
        cv=spec.cv,
        stages=tuple(tuple(_call(call, settings) for call in stage) for _, stage in spec.stages()),
    )


def _call(call: Call, settings: Settings) -> model.Call:
    # A call's `timeout_s: null` means that the call has no timeout, whatever the service says.
    timeout_s = (call if "timeout_s" in call.model_fields_set else settings).timeout_s
    return model.Call(
        handler=call.call,
        probability=call.probability,
        timeout_s=timeout_s,
        retries=settings.retries if call.retries is None else call.retries,
        backoff_s=settings.backoff_s if call.backoff_s is None else call.backoff_s,
    )
