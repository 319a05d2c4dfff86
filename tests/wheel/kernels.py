"""Hands the kernels that this checkout has compiled to an installed twinbed, as if its user had compiled
them.

For: tests of the wheel, which would compile the same code again, for more than a minute. Numba compares each
kernel with the code and the processor, and compiles it if they differ. Not for: the kernels of `traces`. The
user compiles these, which shows that this works for a user who cannot write beside the code.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from numba.core.caching import UserWideCacheLocator

PACKAGES = ("control", "lab", "twin")
"""Packages whose kernels are handed over."""


def hand_over(root: Path, packages: Path, home: Path) -> None:
    """Copy the kernels of PACKAGES. Those of a folder are valid while its files have the same times.

    root: the checkout. packages: the folder with the installed packages. home: the user's own folder. All
    users may write to it.
    """
    home.mkdir(exist_ok=True)
    for name in PACKAGES:
        for source in root.glob(f"{name}/**/*.py"):
            changed_ns = source.stat().st_mtime_ns
            os.utime(packages / source.relative_to(root), ns=(changed_ns, changed_ns))
        for kernel in root.glob(f"{name}/**/__pycache__/*.nb?"):
            source = packages / kernel.parent.parent.relative_to(root) / "any.py"
            kept = home / ".cache" / "numba" / UserWideCacheLocator.get_suitable_cache_subpath(source)
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kernel, kept / kernel.name)
    for place in (home, *home.rglob("*")):
        place.chmod(0o777)
