"""Compiled kernels on disk."""

import os
import subprocess
import sys
from pathlib import Path

INNER = """
from twin.containers.compiled import inlined

@inlined
def inner(x):
    return x + {}
"""
OUTER = """
import numpy as np
from inner import inner
from twin.containers.compiled import package_kernel

@package_kernel
def outer(x):
    return inner(x) + inner(1) - inner(np.int8(1))

print(outer(1), sum(outer.stats.cache_hits.values()), len(inner.signatures))
"""


def test_a_kernel_is_compiled_once_for_all_integers_and_anew_when_another_file_changes(
    tmp_path: Path,
) -> None:
    (tmp_path / "outer.py").write_text(OUTER)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(added: int) -> str:
        (tmp_path / "inner.py").write_text(INNER.format(added))
        os.utime(tmp_path / "inner.py", (added, added))
        command = [sys.executable, "outer.py"]
        return subprocess.check_output(command, cwd=tmp_path, env=env, text=True).strip()

    assert [run(10), run(10), run(20)] == ["11 0 1", "11 1 0", "21 0 1"]
