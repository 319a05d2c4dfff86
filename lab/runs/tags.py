"""The tags of a store's runs: words by which people find runs again, and keep them.

For: `twinbed runs tag`, `list --tag` and `prune --keep-tagged`. Not for: the runs, which a tag does not
change. Each tag of a run is a file of its own on a shelf, so that several processes may tag at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinbed import ScenarioError

if TYPE_CHECKING:
    from lab.runs.store import RunStore

_SHELF = ".tags"
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


class Tags:
    """The tags of a store, kept in the store."""

    def __init__(self, store: RunStore) -> None:
        self._shelf = store.shelf(_SHELF)

    def all(self) -> Mapping[str, list[str]]:
        """Return the sorted tags of each run that has any, by the run's id."""
        table: dict[str, list[str]] = {}
        for name in self._shelf.names():
            tag, _, run_id = name.partition("@")
            table.setdefault(run_id, []).append(tag)
        return table

    def add(self, run_id: str, tag: str) -> None:
        """Give a run a tag. Idempotent. Raises ScenarioError if this cannot be a tag."""
        if not _TAG.fullmatch(tag):
            raise ScenarioError(
                f"tag {tag!r}: expected at most 40 letters, digits, '_', '-' or '.', a letter or digit first"
            )
        self._shelf.write(f"{tag}@{run_id}", b"\n")

    def remove(self, run_id: str, tag: str) -> None:
        """Take a tag from a run. Raises ScenarioError if the run does not have it."""
        present = self.all().get(run_id, [])
        if tag not in present:
            raise ScenarioError(f"run {run_id}: no tag {tag!r}; it has {', '.join(present) or 'none'}")
        self._shelf.remove(f"{tag}@{run_id}")

    def forget(self, run_id: str) -> None:
        """Take all tags from a run that is removed."""
        for tag in self.all().get(run_id, []):
            self._shelf.remove(f"{tag}@{run_id}")
