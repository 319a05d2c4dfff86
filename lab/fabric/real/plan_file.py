"""Reads a fabric's plan for `twinbed testbed up`, as YAML or as options.

For: reading and checking it. Not for: making the fabric (testbed.fabric.up).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from control.fabric import BfdTimers
from lab.ask import guard
from lab.ask.problems import describe
from lab.fabric.real.impairments import ImpairmentFile, impairment
from testbed.fabric.model import Plan
from twinbed import ScenarioError

_DEFAULT = Plan()
_TIMERS = re.compile(r"(?P<multiplier>[0-9]+)x(?P<interval_ms>[0-9]+)")


class PlanFile(BaseModel):
    """A fabric in which every host has an uplink to every ToR of its rack."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(default=_DEFAULT.name, description="Several fabrics can exist under different names.")
    hosts: int = Field(default=_DEFAULT.hosts, description="Hosts, each with loopback, bridge and tunnel.")
    tors: int = Field(default=_DEFAULT.tors, description="Switches at the edge, of all racks.")
    racks: int = Field(default=_DEFAULT.racks, description="Racks; each has its share of hosts and ToRs.")
    spines: int = Field(
        default=_DEFAULT.spines, description="Switches that join racks; every ToR is linked to each."
    )
    storage: int = Field(default=_DEFAULT.storage, description="Number of further hosts, for storage.")
    tenants: tuple[int, ...] = Field(
        default=_DEFAULT.tenants, description="VNI of each tenant; none sees another's frames."
    )
    endpoints: int = Field(
        default=_DEFAULT.endpoints, description="Namespaces for applications, per host and tenant."
    )
    peer_link: bool = Field(default=False, description="A link between the two ToRs of a rack.")
    rate_bps: float | None = Field(default=None, description="Rate of every uplink, each way, bit/s.")
    mtu_bytes: int = Field(default=_DEFAULT.mtu_bytes, description="MTU of the applications' devices, bytes.")
    bfd: str = Field(default="5x50", description="MULTIPLIERxINTERVAL, the latter in milliseconds.")
    real_time: bool = Field(
        default=True, description="bfdd has real-time priority, zebra and bgpd have nice −15."
    )
    stock: bool = Field(default=False, description="FRR as its package configures it.")
    fast_path: bool = Field(
        default=False, description="Every host leaves a dead uplink before routing reacts."
    )
    bfd_plane: bool = Field(
        default=False, description="A process of ours behind bfdd sends BFD's packets and detects silence."
    )
    rto_min_s: float | None = Field(default=None, description="TCP's least retransmission timeout, s.")
    impairments: tuple[ImpairmentFile, ...] = Field(
        default=(), description="Impairments of links after the fabric has converged, as in `testbed fault`."
    )

    @field_validator("bfd")
    @classmethod
    def _timers(cls, text: str) -> str:
        if not _TIMERS.fullmatch(text):
            raise ValueError(f"expected MULTIPLIERxINTERVAL with the interval in ms, as 5x50, not {text!r}")
        return text


def plan(path: Path | None, options: Mapping[str, Any], topo: str | None = None) -> Plan:
    """Return the plan of a file (None: all defaults). An option that is not None replaces its key.

    topo: FILE.py:CLASS from which some options come; errors name it. Raises ScenarioError that names the
    file or the option, and the key.
    """
    given: dict[str, Any] = {} if path is None else guard.read_keys(path, "keys, as `hosts: 4`")
    chosen = {key: value for key, value in options.items() if value is not None}
    where = " with ".join(str(one) for one in (path, topo) if one is not None) or "options"
    try:
        checked = PlanFile.model_validate({**given, **chosen})
    except ValidationError as error:
        raise ScenarioError(describe(error, PlanFile, where)) from None
    timers = _TIMERS.fullmatch(checked.bfd)
    assert timers is not None
    bfd = BfdTimers(int(timers["interval_ms"]) / 1e3, int(timers["multiplier"]))
    try:
        impaired = [
            impairment(asked, f"impairments.{number}.") for number, asked in enumerate(checked.impairments)
        ]
        return Plan(**{**checked.model_dump(), "bfd": bfd, "impairments": tuple(impaired)})
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
