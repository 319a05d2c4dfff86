"""Files of verbs: checked before the work, and written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from lab.runs.files import check_place, write_whole
from twinbed import BackendError


def test_a_file_is_synced_whole_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    file, synced, fsync = tmp_path / "report.html", [], os.fsync
    file.write_bytes(b"old")

    def noted_fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, file.read_bytes()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    assert write_whole(file, lambda made: made.write(b"newer")) == 5
    assert file.read_bytes() == b"newer"
    assert synced == [(5, b"old")]
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError("odd"), KeyboardInterrupt()]
)
def test_a_file_that_is_not_written_leaves_the_old_one_and_nothing_else(tmp_path, error):
    file = tmp_path / "report.html"
    file.write_bytes(b"old")

    def fail(made: BinaryIO) -> None:
        made.write(b"half")
        raise error

    if isinstance(error, OSError):
        with pytest.raises(BackendError, match=r"report.html: cannot be written \((No space left|odd)"):
            write_whole(file, fail)
    else:
        with pytest.raises(KeyboardInterrupt):
            write_whole(file, fail)
    assert file.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [file]


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
    refused("it is to be written twice", file, tmp_path / "folder" / ".." / "file")
    refused("it is read, too", file, inputs=(file,))
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    refused(f"{tmp_path} is not yours", file)
