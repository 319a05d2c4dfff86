"""What every section of an application's or an arrival's text has in common.

For: the pydantic models of lab.containers.input.services. Not for: what they hold.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of a file: no unknown keys, no conversions, no NaN, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
