"""An advice as patches, objects, values and lines for the systems that run containers.

For: `joined` and `write`, over one table of forms. Not for: applying any of it. Rows whose verdict is leave
are left out. Names come from histories that others wrote: YAML, shells and unit files get them quoted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab.containers.advise.forms import compose, docker, helm, kubernetes, systemd, vpa
from lab.containers.advise.forms.common import API
from lab.containers.advise.model import Advice, Row
from twinbed import BackendError, ScenarioError
from twinbed.writing import write_bytes

FORMS: dict[str, Callable[[list[Row]], dict[str, str]]] = {
    "kubernetes": kubernetes.files,
    "vpa": vpa.files,
    "helm": helm.files,
    "compose": compose.files,
    "docker": docker.files,
    "systemd": systemd.files,
}
"""By name, a function of the rows that returns texts by file name."""


def texts(advice: Advice, form: str) -> dict[str, str]:
    """Return the advice in a form, as texts by file name. Raise ScenarioError if it changes nothing."""
    rows = [row for row in advice.rows if row.verdict != "leave"]
    if not rows:
        raise ScenarioError("the advice changes nothing, so there is nothing to write")
    return FORMS[form](rows)


def left_out(advice: Advice, form: str) -> str:
    """Return a sentence on rows that a form cannot express, "" if there are none."""
    if form not in ("kubernetes", "vpa", "helm"):
        return ""
    count = sum(row.verdict != "leave" and row.kind not in API for row in advice.rows)
    return f"{count} rows are not written: no template of their pods can be changed." if count else ""


def joined(advice: Advice, form: str) -> str:
    """Return all files of a form as one text. If there are several, comments mark where each begins."""
    files, lacking = texts(advice, form), left_out(advice, form)
    if len(files) == 1 or form in ("kubernetes", "vpa"):
        return (f"# {lacking}\n" if lacking else "") + "".join(files.values())
    return "\n".join(f"# {name}\n{text}" for name, text in files.items())


def write(advice: Advice, form: str, folder: Path) -> list[Path]:
    """Write the files of a form into a folder, which is made if its parent exists, and return their paths."""
    files = texts(advice, form)
    written = []
    for name, text in files.items():
        path = folder / name
        try:
            folder.mkdir(exist_ok=True)
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise BackendError(f"{path.parent}: cannot be made ({error.strerror})") from error
        write_bytes(path, text.encode())
        written.append(path)
    return written
