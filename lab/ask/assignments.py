"""Sets single keys of a scenario's plain data by their dotted path.

For: `--set KEY=VALUE` and a scenario's `vary`. KEY is a path into the scenario (`machine.restart_s`), or
POLICY.PARAMETER, which reaches every policy of that name; a user's own has the name of its class. Not for:
checking the result (lab.ask.scenario).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.ask import policy as policies_
from lab.ask.policy import Value
from twinbed import ScenarioError


def names_policy(key: str, texts: Sequence[str]) -> bool:
    """Return whether `key` is POLICY.PARAMETER. texts: the scenario's policies, which may be a user's own."""
    head, _, rest = key.partition(".")
    if not rest or head in policies_.names():
        return bool(rest)
    specs = map(policies_.parse, texts) if isinstance(texts, list) else ()
    return any(spec.own is not None and spec.name == head for spec in specs)


def assign(raw: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set `key` in `raw`, whose `policies` are texts. Raises ScenarioError that begins with `where`."""
    if names_policy(key, raw["policies"]):
        name, _, parameter = key.partition(".")
        raw["policies"] = _set_policy(raw["policies"], name, parameter, value, where)
        return
    *parents, last = key.split(".")
    table = raw
    for parent in parents:
        if table.get(parent) is None:
            table[parent] = {}
        table = table[parent]
        if not isinstance(table, dict):
            raise ScenarioError(f"{where}: {parent} has no keys inside")
    table[last] = value


def _set_policy(texts: list[str], name: str, key: str, value: Value, where: str) -> list[str]:
    specs = [policies_.parse(text) for text in texts]
    if not any(spec.name == name for spec in specs):
        raise ScenarioError(f"{where}: the scenario has no policy {name}")
    try:
        changed = [spec.with_parameter(key, value) if spec.name == name else spec for spec in specs]
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    return [spec.text for spec in changed]
