"""Reads and writes requirements.lock, in which every package carries its extras and its files' checksums.

Usage: python3 tools/locked.py EXTRA …        prints the requirements of those extras
       python3 tools/locked.py write FOLDER   prints a new lock file (tools/lock)
It needs the standard library only, because tools/setup calls it before anything is installed.
"""

import re
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"

EXTRAS = (
    "build",
    "base",
    "explorer",
    "cloud",
    "kubernetes",
    "scale",
    "testbed",
    "dev",
    "mutants",
    "docs",
    "torch-cpu",
    "torch",
    "gpu",
)
"""`build` builds packages from their sources. `torch-cpu` is torch's build for CPUs. Where there is none,
`torch` is the index's build, which needs the CUDA packages in `gpu`."""

CPU_TORCH = """\
torch==2.13.0+cpu \\
    --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b  # torch-cpu"""
"""Requirement of torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl, which PyPI does not list."""


def entries(text: str) -> list[str]:
    """Return the requirements of a lock file: each with the lines of its checksums and its comment."""
    return [entry.strip() for entry in re.split(r"\n(?=[#\w])", text) if entry.strip()]


def written(folder: Path) -> str:
    """Return a lock file made from the lists of names in `folder` and the checksums in `folder`/all."""
    needed: dict[str, list[str]] = {}
    for extra in EXTRAS:
        names = ["torch"] if extra.startswith("torch") else (folder / extra).read_text().split()
        for name in names:
            needed.setdefault(name, []).append(extra)
    gpu = {name for name, extras in needed.items() if "gpu" in extras and "base" not in extras}
    lines = ["# Written by tools/lock. A requirement is followed by the checksums of its files."]
    for entry in entries((folder / "all").read_text()):
        name = re.split("[=; ]", entry)[0]
        extras = ["gpu"] if name in gpu else ["torch"] if name == "torch" else needed[name]
        # A package that everyone needs is installed with every extra.
        lines.append(f"{entry}  # {' '.join(['base'] if 'base' in extras else extras)}")
    return "\n".join([*lines, CPU_TORCH]) + "\n"


def chosen(extras: list[str]) -> str:
    """Return the requirements of `extras`, and those that every extra needs. Exits when an extra is
    unknown."""
    unknown = set(extras) - set(EXTRAS)
    if unknown:
        sys.exit(f"setup: unknown extras: {', '.join(sorted(unknown))}; known are {', '.join(EXTRAS)}")
    kept = [
        entry
        for entry in entries(LOCK.read_text())
        if not entry.startswith("#") and set(entry.rpartition("  # ")[2].split()) & set(extras)
    ]
    return "".join(f"{entry.rpartition('  # ')[0]}\n" for entry in kept)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        sys.stdout.write(written(Path(sys.argv[2])))
    else:
        sys.stdout.write(chosen(sys.argv[1:]))
