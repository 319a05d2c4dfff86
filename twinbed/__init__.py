"""The leaf every package may import: the version and the one exception tree.

Not for anything else; `twinbed.files` opens users' files. The package imports nothing of ours, so `traces`,
`kernel` and `control` stay free of each other while sharing the errors that the command line turns into one
line and an exit code (docs/decisions/0001-leaf-module.md).
"""

from importlib import metadata

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
