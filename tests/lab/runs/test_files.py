"""Places of a verb's files are checked before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.runs.files import check_place
from twinbed import BackendError


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_bytes(b"")
    check_place(file, None, tmp_path / "new", folder=folder, inputs=[tmp_path / "read"])
    check_place(folder=tmp_path / "new")

    def refused(why: str, *files: Path, into: Path | None = None, inputs: tuple[Path, ...] = ()) -> None:
        with pytest.raises(BackendError, match=f"cannot be written, {why}"):
            check_place(*files, folder=into, inputs=inputs)

    refused("there is no folder", tmp_path / "nowhere" / "file")
    refused("there is no folder", into=file / "folder")
    refused("it is a folder", folder)
    refused("it is a file", into=file)
    os.mkfifo(tmp_path / "pipe")
    refused("it is a device or a pipe", tmp_path / "pipe")
    refused("it is to be written twice", file, tmp_path / "folder" / ".." / "file")
    refused("it is read, too", file, inputs=(file,))
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    refused(f"{tmp_path} is not yours", file)
