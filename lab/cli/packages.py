"""Messages about missing optional packages, and about other distributions that install twinbed's import
names.

For: two one-line messages of the command line. Not for: installing anything.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

NAMES = ("app", "control", "kernel", "lab", "scenarios", "testbed", "traces", "twin", "twinbed")
"""Top-level import names that twinbed owns."""
EXTRAS = {
    "explorer": ("altair", "streamlit", "vl_convert"),
    "cloud": ("safetensors", "sklearn", "torch", "xgboost"),
    "kubernetes": ("httpx2", "lightkube"),
    "scale": ("dask", "distributed", "fsspec", "optuna", "s3fs"),
    "testbed": (
        "cryptography", "google", "grpc", "hdrh", "httptools", "mininet", "prometheus_client", "pyroute2",
        "scapy", "uvloop", "virtme",
    ),
}  # fmt: skip
"""Import names of the packages that each extra installs."""


def cure(package: str | None) -> str:
    """Return one line that says how to install a package that could not be imported."""
    root = (package or "").partition(".")[0]
    extra = next((extra for extra, roots in EXTRAS.items() if root in roots), None)
    wanted = f"'twinbed[{extra}]'" if extra else root
    # pipx and uv give twinbed an environment of its own, which a bare pip does not know.
    python = shlex.quote(sys.executable)
    install = f"{python} -m pip install {wanted}"
    if find_spec("pip") is None:
        install = f"uv pip install {wanted} --python {python}"
    return f"the package {root} is not installed; {install} installs it"


def strangers(folder: Path | None = None) -> list[str]:
    """Return one line for each other distribution that installs one of twinbed's import names.

    folder: folder of twinbed's packages. A checkout is never shared, so the result is then empty.
    """
    folder = folder or Path(__file__).resolve().parents[2]
    lines = []
    for info in sorted(folder.glob("*.dist-info")):
        name = re.sub(r"-[^-]+\.dist-info$", "", info.name)
        if name == "twinbed":
            continue
        top = info / "top_level.txt"
        owned = set(top.read_text().split()) if top.is_file() else {name.replace("-", "_").lower()}
        lines += [f"{name} also installs {root!r}" for root in sorted(owned.intersection(NAMES))]
    return lines
