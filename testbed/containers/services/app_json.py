"""The JSON form of a service graph (control.services), which a deployment hands to its containers.

For: writing and reading it. Not for: running it (serve.py), addresses (deploy.py) nor the text that a user
writes (lab.containers.input.services.application). The twin's network_s is not in it, because the way between
two real processes takes as long as the loopback device needs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from control.services import Call, Draw, Handler, Memory, Service, ServiceApp
from twinbed import ScenarioError


def to_plain(app: ServiceApp) -> dict[str, Any]:
    """Return what `from_plain` reads. Draws are their names in lower case."""
    return asdict(app, dict_factory=lambda items: {key: _plain(value) for key, value in items})


def _plain(value: object) -> object:
    return value.name.lower() if isinstance(value, Draw) else value


def from_plain(raw: object, where: str = "application") -> ServiceApp:
    """Return the application in a JSON parser's result. Raises ScenarioError that begins with `where`."""
    top = _Keys(raw, where, "")
    services = {name: _service(top.under(f"services.{name}", raw)) for name, raw in top.table("services")}
    requests = {name: _text(target, f"{where}: requests.{name}") for name, target in top.table("requests")}
    name = _text(top.take("name"), f"{where}: name")
    top.end()
    try:
        return ServiceApp(name, services, requests)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None


# --- reading ---------------------------------------------------------------------------------------------


class _Keys:
    """A mapping whose keys are taken one by one. A key that is left at the end is a mistake."""

    def __init__(self, raw: object, where: str, key: str) -> None:
        self._where, self._key = where, key
        if not isinstance(raw, dict):
            raise ScenarioError(f"{where}: {key or 'top'}: expected keys and values")
        self._left: dict[str, Any] = dict(raw)

    def name(self, key: str) -> str:
        """Return how messages name a key of this mapping."""
        return f"{self._where}: {self._key}{'.' if self._key else ''}{key}"

    def take(self, key: str) -> Any:
        if key not in self._left:
            raise ScenarioError(f"{self.name(key)}: missing")
        return self._left.pop(key)

    def number(self, key: str) -> float:
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ScenarioError(f"{self.name(key)}: expected a number, not {value!r}")
        return float(value)

    def whole(self, key: str) -> int:
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ScenarioError(f"{self.name(key)}: expected a whole number, not {value!r}")
        return value

    def table(self, key: str) -> list[tuple[str, Any]]:
        value = self.take(key)
        if not isinstance(value, dict):
            raise ScenarioError(f"{self.name(key)}: expected keys and values")
        return list(value.items())

    def entries(self, key: str) -> list[Any]:
        value = self.take(key)
        if not isinstance(value, list):
            raise ScenarioError(f"{self.name(key)}: expected a list")
        return value

    def under(self, key: str, raw: object) -> _Keys:
        return _Keys(raw, self._where, f"{self._key}{'.' if self._key else ''}{key}")

    def end(self) -> None:
        for key in self._left:
            raise ScenarioError(f"{self.name(key)}: no such key")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ScenarioError(f"{where}: expected text, not {value!r}")
    return value


def _service(keys: _Keys) -> Service:
    memory = keys.under("memory", keys.take("memory"))
    service = Service(
        handlers={
            name: _handler(keys.under(f"handlers.{name}", raw)) for name, raw in keys.table("handlers")
        },
        replicas=keys.whole("replicas"),
        threads=keys.number("threads"),
        workers=keys.whole("workers"),
        queue=keys.whole("queue"),
        memory=Memory(*(memory.whole(key) for key in Memory.__slots__)),
        connections={name: _connections(keys, name, limit) for name, limit in keys.table("connections")},
    )
    memory.end()
    keys.end()
    return service


def _connections(keys: _Keys, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScenarioError(f"{keys.name('connections')}.{name}: expected a whole number, not {value!r}")
    return value


def _handler(keys: _Keys) -> Handler:
    draw = keys.take("draw")
    draws = {known.name.lower(): known for known in Draw}
    if draw not in draws:
        raise ScenarioError(f"{keys.name('draw')}: {draw!r} is none of {', '.join(draws)}")
    stages = []
    for number, stage in enumerate(keys.entries("stages")):
        if not isinstance(stage, list):
            raise ScenarioError(f"{keys.name('stages')}.{number}: expected a list")
        stages.append(
            tuple(_call(keys.under(f"stages.{number}.{place}", call)) for place, call in enumerate(stage))
        )
    handler = Handler(keys.number("mean_s"), draws[draw], keys.number("cv"), tuple(stages))
    keys.end()
    return handler


def _call(keys: _Keys) -> Call:
    timeout_s = keys.take("timeout_s")
    if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float)):
        raise ScenarioError(f"{keys.name('timeout_s')}: expected a number or null, not {timeout_s!r}")
    call = Call(
        handler=_text(keys.take("handler"), keys.name("handler")),
        probability=keys.number("probability"),
        timeout_s=None if timeout_s is None else float(timeout_s),
        retries=keys.whole("retries"),
        backoff_s=keys.number("backoff_s"),
    )
    keys.end()
    return call
