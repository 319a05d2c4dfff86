"""Reads the small answers of Prometheus' API: lists of labels and names.

For: lab.connect.prometheus. Not for: values (traces.prometheus.matrix), which are too many for this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from twinbed import BackendError
from twinbed.files import MIB
from twinbed.text import printable

MOST_BYTES = 256 * MIB
"""Most bytes of an answer: the labels of some 400,000 series."""


@dataclass(frozen=True, slots=True)
class Listed:
    """data: the entries; warnings: what the server warned of."""

    data: list[object]
    warnings: tuple[str, ...]


class Body:
    """Collects an answer from `url` and returns the list in it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._text = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take the next piece. Raises BackendError for more than MOST_BYTES."""
        self._text += piece
        if len(self._text) > MOST_BYTES:
            raise BackendError(f"{self._url}: more than {MOST_BYTES // MIB} MiB; take a narrower --selector")

    def listed(self) -> Listed:
        """Return the list. Raises BackendError, which names the URL, if the answer is none."""
        try:
            document = json.loads(self._text)
        except (ValueError, RecursionError):
            raise BackendError(
                f"{self._url}: the answer is not JSON; is it a Prometheus, or a login page before it?"
            ) from None
        if not isinstance(document, dict) or not isinstance(document.get("data"), list):
            raise BackendError(
                f"{self._url}: JSON, but not an answer of Prometheus; is the URL's path right?"
            )
        if document.get("isPartial") is True:
            raise BackendError(f"{self._url}: the answer is partial; try again when all of the storage is up")
        warnings = document.get("warnings")
        texts = tuple(printable(str(text)[:300]) for text in warnings) if isinstance(warnings, list) else ()
        return Listed(document["data"], texts)
