"""Small applications as plain data, and Hypothesis strategies for any acyclic one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def two_services(**changes: Any) -> dict[str, Any]:
    """`web.page` calls `db.find`; `changes` replace whole top-level keys."""
    return {
        "name": "small",
        "services": {
            "web": {"handlers": {"page": {"cpu_ms": 2.0, "calls": ["db.find"]}}},
            "db": {"handlers": {"find": {"cpu_ms": 0.5}, "write": {"cpu_ms": 1.0}}},
        },
        "requests": {"page": {"handler": "web.page"}},
    } | changes


_POSITIVE = st.floats(0.001, 100.0)
_MEMORY = st.fixed_dictionaries(
    {},
    optional={
        "base_mib": st.floats(0, 1000),
        "cache_mib": st.floats(0, 100),
        "request_kib": st.floats(0, 10),
    },
)
_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(1, 4), "threads": st.floats(0.1, 64.0), "workers": st.integers(1, 1000),
        "queue": st.integers(0, 1000), "memory": _MEMORY, "timeout_s": st.none() | _POSITIVE,
        "retries": st.integers(0, 3), "backoff_s": st.floats(0, 1),
    },
)  # fmt: skip


@st.composite
def acyclic_apps(draw: st.DrawFn) -> dict[str, Any]:
    """Any application whose handlers call only handlers further down; services may call themselves."""
    names = draw(
        st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), min_size=1, max_size=6, unique=True)
    )
    owners = draw(st.lists(st.sampled_from(names), min_size=len(names), max_size=12))
    handlers = [(name, "first") for name in names] + [(name, f"h{at}") for at, name in enumerate(owners)]
    order = draw(st.permutations(handlers))
    services: dict[str, Any] = {name: {**draw(_SETTINGS), "handlers": {}} for name in names}
    for at, (service, handler) in enumerate(order):
        ahead = [".".join(each) for each in order[at + 1 :]]
        services[service]["handlers"][handler] = {
            "cpu_ms": draw(_POSITIVE),
            "distribution": draw(st.sampled_from(["fixed", "exponential", "lognormal"])),
            "calls": draw(_stages(ahead)) if ahead else [],
        }
    called = {name: _callees(service) for name, service in services.items()}
    for name, service in services.items():
        if called[name]:
            limits = st.dictionaries(st.sampled_from(sorted(called[name])), st.integers(1, 100), max_size=3)
            service["connections"] = draw(limits)
    weights = draw(st.lists(st.floats(0, 10), min_size=1, max_size=4).filter(any))
    targets = [".".join(draw(st.sampled_from(order))) for _ in weights]
    requests = {
        f"ask{at}": {"handler": target, "weight": weight}
        for at, (target, weight) in enumerate(zip(targets, weights, strict=True))
    }
    return {"name": "any", "defaults": draw(_SETTINGS), "services": services, "requests": requests}


def _stages(ahead: list[str]) -> st.SearchStrategy[list[Any]]:
    target = st.sampled_from(ahead)
    options = {
        "probability": st.floats(0.01, 1.0),
        "times": st.integers(1, 4),
        "timeout_s": st.none() | _POSITIVE,
        "retries": st.none() | st.integers(0, 3),
    }
    call = target | st.fixed_dictionaries({"call": target}, optional=options)
    return st.lists(call | st.lists(call, min_size=1, max_size=4), max_size=4)


def _callees(service: dict[str, Any]) -> set[str]:
    called: set[str] = set()
    for handler in service["handlers"].values():
        for stage in handler["calls"]:
            for call in stage if isinstance(stage, list) else [stage]:
                called.add((call if isinstance(call, str) else call["call"]).partition(".")[0])
    return called
