"""The keys of `twinbed.toml`, the user's own defaults of options.

For: checking that file. Not for: finding the file and applying it (lab.cli.config).
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from lab.ask.section import Section


def _engine(text: str) -> str:
    if not re.fullmatch(r"local|dask|(dask|tcp|tls)://.+:\d+", text):
        raise ValueError(f"expected local, dask, dask://HOST:PORT, tcp://… or tls://…, not {text!r}")
    return text


_Text = Annotated[str, Field(min_length=1)]


class Config(Section):
    """Defaults of options. Options that are left out have twinbed's own defaults."""

    store: _Text | None = Field(None, description="Directory or URL in which runs are kept (`--store`).")
    region: _Text | None = None
    """Region of prices (`--region` of `recommend`, `profile` and `predict explain`)."""
    engine: Annotated[str, AfterValidator(_engine)] | None = None
    """The engine that makes runs of the twin (`--engine`)."""
