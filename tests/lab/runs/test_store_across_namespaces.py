"""A store whose readers and writers see different process ids, as containers and machines over NFS do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.runs.store import RunStore

ROOT = Path(__file__).resolve().parents[3]
WRITER = """
import sys
import lab.runs.store as s
import tests.lab.runs.test_run_store as t

def wait(*args, **options):
    print("writing", flush=True)
    sys.stdin.read()

s.pq.write_table = wait
s.RunStore(sys.argv[1]).publish(t.manifest(), t.tables())
"""


@pytest.mark.apart
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace of its own needs root")
@pytest.mark.parametrize("apart", ["reader", "writer"])
def test_a_list_leaves_alone_what_a_writer_of_another_pid_namespace_writes(tmp_path, apart):
    space = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*space, "true"], check=False).returncode:
        pytest.skip("unshare is refused")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writer = subprocess.Popen(
        [*(space if apart == "writer" else ()), sys.executable, "-c", WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        before = hidden(tmp_path)
        assert len(before) >= 1
        reader = [sys.executable, "-m", "lab.cli.main", "runs", "list", "--store", str(tmp_path)]
        subprocess.run([*(space if apart == "reader" else ()), *reader], check=True, env=environment)
        assert hidden(tmp_path) == before
        writer.kill()
        # It ends when the writer inside the namespace has ended.
        assert writer.stdout.read() == b""
    RunStore(tmp_path)
    assert hidden(tmp_path) == []


def hidden(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir() if entry.name != ".lock")
