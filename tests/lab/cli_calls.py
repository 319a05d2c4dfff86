"""How a call of the command line ended, and what makes one."""

from collections.abc import Callable
from dataclasses import dataclass


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


Twinbed = Callable[..., Ended]
