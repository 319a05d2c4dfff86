"""Reads the small answers of Prometheus' API: lists of labels and names.

For: lab.connect.prometheus. Not for: values (traces.prometheus.matrix), which are too many for this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from twinbed import BackendError
from twinbed.text import printable


@dataclass(frozen=True, slots=True)
class Listed:
    """data: the entries; warnings: what the server warned of."""

    data: list[object]
    warnings: tuple[str, ...]


def listed(body: bytes, url: str) -> Listed:
    """Return the list in an answer. Raises BackendError, which names the URL, if the answer is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise BackendError(
            f"{url}: the answer is not JSON; is it a Prometheus, or a login page before it?"
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        raise BackendError(f"{url}: JSON, but not an answer of Prometheus; is the URL's path right?")
    warnings = document.get("warnings")
    texts = tuple(printable(str(text)[:300]) for text in warnings) if isinstance(warnings, list) else ()
    if document.get("isPartial") is True:
        raise BackendError(f"{url}: the answer is partial; try again when all of the storage is up")
    return Listed(document["data"], texts)
