"""NCCL's defaults by version: its settings of queue pairs, and a scenario's changes to them.

For: `defaults` of a version, and `settings` with a scenario's own variables. Not for: the behaviour of queue
pairs (twin.fabric). nccl_defaults.csv ships: variable, first version with this default, default, unit. Names
without a prefix are not variables: NCCL sets these values itself. −1 and −2 mean that NCCL chooses. Source:
NCCL's tagged sources, 2.3.5 to 2.30.7 (NCCL_PARAM in transport/net_ib and misc/ibvwrap).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from twin.fabric.port_failover import PortFailover
from twinbed import ScenarioError
from twinbed.text import nearest

PATH = Path(__file__).with_name("nccl_defaults.csv")
FIRST, LAST = "2.3.5", "2.30.7"
"""The first and the last version that was read."""

_FAILOVER, _RECOVERY = "NCCL_IB_RESILIENCY_PORT_FAILOVER", "NCCL_IB_RESILIENCY_PORT_RECOVERY"
_MS = 1000.0

UNUSED = "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE"
"""A variable that NCCL up to 2.30.7 declares and never reads."""

_RANGES = {
    "NCCL_IB_TIMEOUT": range(32),
    "NCCL_IB_RETRY_CNT": range(8),
    "NCCL_IB_QPS_PER_CONNECTION": range(1, 129),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE": range(1, 11),
}
"""Values that a variable may have, where NCCL or the adapter takes no others."""

_PREFIX = "NCCL_"
_TEXT = "text"
_LATEST = 1 << 30
"""Patch of a version that names none: the latest of its line."""

Setting = int | str
Settings = Mapping[str, Setting]
Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Default:
    """A row of the table: from version `first` on the variable has this default, in `unit`."""

    variable: str
    first: Version
    default: Setting
    unit: str


@cache
def table() -> tuple[Default, ...]:
    """Return the rows in the order of the file."""
    with PATH.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(
        Default(
            row["variable"],
            _parsed(row["first_version"]),
            row["default"] if row["unit"] == _TEXT else int(row["default"]),
            row["unit"],
        )
        for row in rows
    )


def defaults(version: str) -> Settings:
    """Return each variable of a version with its default. `2.18` is the last release of that line.

    Raises ScenarioError for text that is not a version, and for versions before FIRST and after LAST.
    """
    wanted = _known(version)
    return {row.variable: row.default for row in sorted(table(), key=_first) if row.first <= wanted}


def settings(version: str, variables: Settings) -> Settings:
    """Return a version's defaults with the given variables in their place.

    Raises ScenarioError as `defaults` does, for a variable that this version lacks or that NCCL sets itself,
    and for a value of another type or out of range.
    """
    folded = defaults(version)
    for name, value in variables.items():
        if name not in folded:
            raise ScenarioError(f"nccl.variables.{name}: {_unknown(name, version, folded)}")
        if not name.startswith(_PREFIX):
            raise ScenarioError(
                f"nccl.variables.{name}: NCCL sets it to {folded[name]}, and no variable does"
            )
        if isinstance(value, str) != isinstance(folded[name], str):
            expected = "text" if isinstance(folded[name], str) else "a whole number without quotes"
            raise ScenarioError(f"nccl.variables.{name}: {value!r} is not {expected}")
        if name in _RANGES and value not in _RANGES[name]:
            low, high = _RANGES[name][0], _RANGES[name][-1]
            raise ScenarioError(f"nccl.variables.{name}: {value} is not one of {low} to {high}")
    return {**folded, **variables}


def queue_pairs() -> dict[str, tuple[int, int]]:
    """Return the exponent of the ACK timeout and the retries, by the version from which they hold."""
    timeout, retries = "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"
    firsts = sorted({row.first for row in table() if row.variable in (timeout, retries)})
    versions = {version: defaults(version) for version in (".".join(map(str, first)) for first in firsts)}
    return {version: (int(of[timeout]), int(of[retries])) for version, of in versions.items()}


def notes(variables: Settings) -> Sequence[str]:
    """Return notes for the user about these variables, one sentence each."""
    return [f"{name} changes nothing: NCCL never reads it." for name in variables if name == UNUSED]


def failover_of(
    version: str, variables: Settings, *, recovery: bool, receiver_lag_s: float = 0.0
) -> PortFailover:
    """Return how this version moves traffic off a dead port of two, and back with `recovery`.

    The scheme switches the library's failover and recovery on, whatever their variables. Raises ScenarioError
    as `settings`, and for a version without them.
    """
    set_to = settings(version, variables)
    needed = _RECOVERY if recovery else _FAILOVER
    if needed not in set_to:
        first = ".".join(map(str, min(row.first for row in table() if row.variable == needed)))
        raise ScenarioError(
            f"fabric.nccl.version: {version} lacks {needed}, which came with {first}; choose another version "
            "or scheme"
        )

    def of(name: str) -> float:
        return float(set_to[name])

    common = PortFailover(
        recovery=recovery,
        probe_delay_s=of(f"{_FAILOVER}_PROBE_DELAY") / _MS,
        receiver_lag_s=receiver_lag_s,
    )
    if not recovery:
        return common
    return replace(
        common,
        start_s=of(f"{_RECOVERY}_START_DELAY") / _MS,
        interval_s=of(f"{_RECOVERY}_ALIVE_MSG_BATCH_INTERVAL") / _MS,
        ack_s=of(f"{_RECOVERY}_ACK_TIMEOUT") / _MS,
        alive_s=of(f"{_RECOVERY}_ALIVE_MSG_TIMEOUT") / _MS,
        tries=int(of(f"{_RECOVERY}_ATTEMPTS_MAX")),
    )


def _unknown(name: str, version: str, folded: Settings) -> str:
    later = [row.first for row in table() if row.variable == name]
    if later:
        return f"NCCL has it from {'.'.join(map(str, min(later)))} on, not in {version}"
    settable = [known for known in folded if known.startswith(_PREFIX)]
    longer = [known for known in settable if known.startswith(name)]
    hint = nearest(name, longer or settable, f"its names are such as {(longer or settable)[0]}")
    return f"NCCL {version} has no such variable; {hint}"


def _known(version: str) -> Version:
    parsed = _parsed(version)
    least, most = _parsed(FIRST), _parsed(LAST)
    newer = parsed[:2] > most[:2] or most < parsed < (*most[:2], _LATEST)
    if parsed < least or newer:
        raise ScenarioError(f"nccl.version: {version}: versions {FIRST} to {LAST} are known")
    return parsed


def _parsed(version: str) -> Version:
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?", version)
    if match is None:
        raise ScenarioError(f"nccl.version: {version!r} is no version: write it as '2.18.1'")
    major, minor, patch = match.groups()
    return int(major), int(minor), _LATEST if patch is None else int(patch)


def _first(row: Default) -> Version:
    return row.first
