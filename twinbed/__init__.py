"""The leaf every package may import: the version and the one exception tree.

Not for anything else; `twinbed.files` opens users' files. The package imports nothing of ours, so `traces`,
`kernel` and `control` stay free of each other while sharing the errors that the command line turns into one
line and an exit code (docs/decisions/0001-leaf-package.md). The Python API (`twinbed.whatif` and others) is
lab.api, which is loaded by name when it is first used (docs/decisions/0053-own-code-and-the-api.md).
"""

from importlib import import_module, metadata
from typing import Any

_API = ("advise", "compare", "recommend", "record", "run", "sweep", "whatif", "Store")
"""Names of the Python API, in lab.api."""

try:
    __version__ = metadata.version("twinbed")
except metadata.PackageNotFoundError:  # a checkout that nobody installed
    __version__ = "0+unknown"


class TwinbedError(Exception):
    """Base of every error that twinbed raises on purpose; its text is one line for a user."""


class ScenarioError(TwinbedError):
    """The user's scenario or setting is wrong; the message names the file, the key and the value."""


class TraceError(TwinbedError):
    """A trace is not what it claims; the message names the file and the row or column."""


class BackendError(TwinbedError):
    """The machine refused; the message says what was refused and what would cure it."""


class StoreError(TwinbedError):
    """A run cannot be read or written; the message names the run or the path."""


class InvariantError(TwinbedError):
    """twinbed itself broke one of its promises: our bug, never the user's."""


def __getattr__(name: str) -> Any:
    """Return a name of the Python API (PEP 562)."""
    if name in _API:
        return getattr(import_module("lab.api"), name)
    raise AttributeError(f"module 'twinbed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_API])
