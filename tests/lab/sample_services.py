"""A small application and questions about it, as files: seconds of virtual time, a blink of real time."""

from pathlib import Path
from typing import Any

import yaml

from lab.ask.scenario import Scenario, build

TINY: dict[str, Any] = {
    "name": "tiny",
    "services": {
        "web": {"handlers": {"page": {"cpu_ms": 4.0, "calls": ["db.find"]}}},
        "db": {"replicas": 2, "handlers": {"find": {"cpu_ms": 1.0}}},
    },
    "requests": {"page": {"handler": "web.page"}},
}


def write_app(folder: Path, **changes: Any) -> Path:
    """`TINY`, whole top-level keys replaced by `changes`, as a file."""
    path = folder / "tiny_app.yaml"
    path.write_text(yaml.safe_dump(TINY | changes, sort_keys=False))
    return path


def services(app: Path, /, **changes: Any) -> dict[str, Any]:
    """The section `services` of a scenario: two seconds of fifty requests a second on one host."""
    return {
        "app": str(app),
        "arrivals": {"kind": "exponential", "rate_rps": 50.0},
        "duration_s": 2.0,
        "hosts": 1,
    } | changes


def question(app: Path, *, within: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    """A scenario of `services`, changed `within`, under escra and static, changed by `changes`."""
    raw = {"name": "tiny", "services": services(app, **(within or {})), "policies": ["escra", "static"]}
    return build(raw | changes)
