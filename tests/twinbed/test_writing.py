"""Files are written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from twinbed import BackendError
from twinbed.writing import is_special, whole, write_bytes, write_whole


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


def test_a_block_that_cannot_write_keeps_the_former_content_and_leaves_no_part(tmp_path):
    file = tmp_path / "status"
    write_bytes(file, b"first")

    def fail() -> None:
        with whole(file) as made:
            made.write(b"sec")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("status", "first")]


def test_a_name_of_any_length_can_be_written(tmp_path):
    file = tmp_path / ("n" * 251 + ".csv")
    assert write_bytes(file, b"whole") == 5
    assert [*tmp_path.iterdir()] == [file]


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BackendError, match=r"pipe: cannot be written \(it is a device or a pipe\)"):
        write_bytes(tmp_path / "pipe", b"new")
    assert (tmp_path / "pipe").is_fifo()


def test_standard_output_is_not_replaced_where_it_leads_to_a_file(tmp_path):
    (tmp_path / "mine").write_bytes(b"old")
    with (tmp_path / "mine").open("rb") as file:
        for place in (f"/dev/fd/{file.fileno()}", f"/proc/self/fd/{file.fileno()}"):
            with pytest.raises(BackendError, match="it is a device or a pipe"):
                write_bytes(Path(place), b"new")
    assert is_special(Path("/dev/stdout"))
    assert not is_special(tmp_path / "mine")
