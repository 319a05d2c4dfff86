"""Reads what impairs a link: one grammar for `twinbed testbed fault` and for the plan of `testbed up`.

For: reading and checking it. Not for: impairing (testbed.fabric.impairments).
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from control.fabric import Direction
from lab.ask.times import duration_s
from testbed.fabric.model import Impairment
from twinbed import ScenarioError

_NUMBER = "(0|[1-9][0-9]{0,3})"
_LINK = re.compile(
    rf"h(?P<host>{_NUMBER}):tor(?P<tor>{_NUMBER})|t(?P<low>{_NUMBER}):spine(?P<spine>{_NUMBER})"
)
_PER_CENT = re.compile(r"(?P<number>[0-9]{1,3}(\.[0-9]{1,6})?)%")


class ImpairmentFile(BaseModel):
    """An impairment of a link. Without loss, delay and corrupt the link breaks and loses its carrier."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    link: str = Field(description="A host's link to a ToR: h0:tor1; or a ToR's to a spine: t0:spine1.")
    silent: bool = Field(default=False, description="Drop everything and keep the carrier.")
    one_way: Literal["out", "in"] | None = Field(
        default=None, description="Only what the host or ToR sends, or receives; silently."
    )
    loss: str | None = Field(default=None, description="Drop this share of the packets: 5%.")
    delay: str | None = Field(default=None, description="Delay packets: 2ms. Needs a kernel with netem.")
    corrupt: str | None = Field(
        default=None, description="Corrupt this share: 1%. Needs a kernel with netem."
    )
    flap: str | None = Field(default=None, description="Impair and repair in turns, each this long: 10s.")
    at: str | None = Field(default=None, description="Begin after this time: 5s.")
    lasts: str | None = Field(default=None, alias="for", description="Repair after this time: 20s.")


def impairment(asked: ImpairmentFile, place: str = "") -> Impairment:
    """Return a file's impairment. Raises ScenarioError naming the key, after `place`."""
    parts = _LINK.fullmatch(asked.link)
    if parts is None:
        raise ScenarioError(
            f"{place}link: {asked.link!r} is no link; take a host and its uplink, as h0:tor1, or t0:spine1"
        )

    def share(key: str, text: str | None) -> float | None:
        number = _PER_CENT.fullmatch(text) if text is not None else None
        if text is not None and (number is None or not 0 < float(number["number"]) <= 100):
            raise ScenarioError(f"{place}{key}: {text} is no share; take a number up to 100 and %, as 5%")
        return float(number["number"]) / 100 if number else None

    def time_s(key: str, text: str | None) -> float | None:
        return None if text is None else duration_s(text, f"{place}{key}:")

    loss, delay_s = share("loss", asked.loss), time_s("delay", asked.delay)
    corrupt = share("corrupt", asked.corrupt)
    if asked.silent and not (loss is delay_s is corrupt is None):
        raise ScenarioError(
            f"{place}silent: it drops everything; leave out loss, delay and corrupt, or silent"
        )
    way = None if asked.one_way is None else {"out": Direction.OUT, "in": Direction.IN}[asked.one_way]
    return Impairment(
        host=int(parts["host"] or -1),
        tor=int(parts["tor"] or parts["low"]),
        spine=None if parts["spine"] is None else int(parts["spine"]),
        silent=asked.silent or way is not None,
        one_way=way,
        loss=loss,
        delay_s=delay_s,
        corrupt=corrupt,
        flap_s=time_s("flap", asked.flap),
        at_s=time_s("at", asked.at) or 0.0,
        for_s=time_s("for", asked.lasts),
    )
