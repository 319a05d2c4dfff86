"""The Grafana dashboard and the alert rules that ship with twinbed.

For: the two files, and writing them where a user wants them. Not for: the metrics, whose table is in
testbed.containers.exporting. The dashboard prompts for its data source, so it fits every Grafana.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from twinbed.writing import write_bytes

FILES = {"dashboard.json": "twinbed-dashboard.json", "alerts.yaml": "twinbed-alerts.yaml"}
"""Files of this package, and the names under which users get them."""


def content(name: str) -> str:
    """Return the text of the file `name`, a key of FILES."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")


def write_to(folder: Path) -> list[Path]:
    """Write both files into a folder, which is made, and return their paths. Raises BackendError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, given in FILES.items():
        write_bytes(folder / given, content(name).encode())
    return [folder / given for given in FILES.values()]
