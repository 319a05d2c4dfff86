"""The user's defaults of options: `twinbed.toml` in the working directory, else in the configuration folder.

For: store, region and engine of every verb that has them. Not for: scenarios, nor the Python API, whose
callers pass all options. The command line wins over the environment, which wins over the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

NAME = "twinbed.toml"
VARIABLES = {"store": "TWINBED_STORE", "region": "TWINBED_REGION", "engine": "TWINBED_ENGINE"}
"""Keys of the file, each with the environment variable that wins over it. An option that names this variable
has the key's value as its default."""


def file() -> Path | None:
    """Return the file in force: that of the working directory, else the user's, else None.

    A folder that this user may not search counts as empty: after `sudo -u`, HOME may belong to another user.
    """
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "twinbed"
    return next((path for path in (Path(NAME), home / NAME) if os.path.lexists(path)), None)


def defaults(command: Any, values: dict[str, str]) -> dict[str, Any]:
    """Return click's `default_map` of a command: for each verb, the values by its options' names."""
    if hasattr(command, "commands"):
        return {name: defaults(inner, values) for name, inner in command.commands.items()}
    keys = {variable: key for key, variable in VARIABLES.items()}
    named = {option.name: keys[option.envvar] for option in command.params if option.envvar in keys}
    return {name: values[key] for name, key in named.items() if key in values}


def read(path: Path) -> dict[str, str]:
    """Return the values in a file. A store that is a relative path begins at the file's folder.

    Raises ScenarioError that names the file and the key.
    """
    from lab.ask import guard
    from lab.ask.config import Config
    from lab.ask.problems import validated
    from twinbed.files import read_user_text

    raw = guard.parse_toml(read_user_text(path, guard.MOST_BYTES), str(path))
    values: dict[str, str] = validated(Config, raw, str(path)).model_dump(exclude_none=True)
    if "store" in values and "://" not in values["store"]:
        values["store"] = str(path.parent / Path(values["store"]).expanduser())
    return values
