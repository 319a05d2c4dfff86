"""The audit file: appended to, whole lines, nothing undone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.containers.attach.audit import Audit
from twinbed import BackendError


def test_every_note_is_a_line_and_a_torn_one_spoils_no_other(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "new")
    audit.note("attach", container="docker:a\nb", why="x")
    with audit.path.open("a") as file:
        file.write('{"at": "20')
    audit.note("detach", container="docker:a\nb", why="y")
    first, torn, last = audit.path.read_text().splitlines()
    assert torn == '{"at": "20'
    assert [json.loads(line)["what"] for line in (first, last)] == ["attach", "detach"]
    assert audit.path.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match=r"file/audit\.jsonl: cannot be written"):
        Audit(tmp_path / "file").note("attach")
