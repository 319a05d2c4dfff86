"""How a call of the command line ended, and what makes one."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ended:
    """How a call ended."""

    code: int
    out: str
    err: str

    @property
    def refused(self) -> str:
        """The one line of a call that could not be carried out; fails if it was anything else."""
        assert self.code == 2
        assert self.out == ""
        assert self.err.startswith("twinbed: ")
        assert self.err.count("\n") == 1
        assert self.err.endswith("\n")
        return self.err.removeprefix("twinbed: ").rstrip("\n")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of a result in JSON; fails if the call was refused."""
        assert self.code in (0, 1), self.err
        rows: list[dict[str, Any]] = json.loads(self.out)["rows"]
        return rows
