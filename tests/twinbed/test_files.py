"""A user's file is opened only if it is a regular file of bounded size, and never waited for."""

import os
import socket
import stat
from pathlib import Path

import pytest

from twinbed import ScenarioError, TraceError
from twinbed.files import MIB, open_regular, read_user_bytes, read_user_text


def test_a_regular_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("naïve\r\n".encode())
    assert read_user_text(path, 100) == "naïve\r\n"
    assert read_user_bytes(str(path), 8) == path.read_bytes()
    with open_regular(path, 100) as file:
        assert file.read() == path.read_bytes()


def test_a_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1")
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    assert read_user_text(tmp_path / "link.yaml", 100) == "a: 1"


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScenarioError, match="pipe: is a FIFO, not a regular file; save its content"):
        read_user_text(tmp_path / "pipe", 100)


def test_a_fifo_that_takes_the_place_of_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is looked at twice: before it is opened, and the opened file itself."""
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    before = (tmp_path / "file").stat()
    monkeypatch.setattr(Path, "stat", lambda _: before)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ScenarioError, match="is a FIFO"):
        open_regular(tmp_path / "pipe", 100)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_devices_directories_and_sockets_are_refused_without_reading(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    for path, kind in (
        ("/dev/zero", "a device"),
        (tmp_path, "a directory"),
        (tmp_path / "socket", "a socket"),
    ):
        with pytest.raises(ScenarioError, match=f"is {kind}, not a regular file"):
            read_user_text(path, MIB)
    listening.close()


def test_a_larger_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(TraceError, match="sparse: larger than 3 MiB, the most that is read"):
        read_user_bytes(path, 3 * MIB, TraceError)


def test_a_file_that_states_no_size_is_read_to_the_limit_only() -> None:
    path = Path("/proc/self/status")
    assert stat.S_ISREG(path.stat().st_mode)
    assert path.stat().st_size == 0
    with pytest.raises(ScenarioError, match="larger than 10 bytes"):
        read_user_bytes(path, 10)


def test_the_first_byte_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"title: caf\xe9")
    with pytest.raises(ScenarioError, match=r"latin: not UTF-8 text \(byte 10\)"):
        read_user_text(tmp_path / "latin", 100)


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="absent: No such file or directory"):
        read_user_text(tmp_path / "absent", 100, TraceError)
    with pytest.raises(ScenarioError, match="a path cannot have a null character"):
        read_user_text("a\0b", 100)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfname: a")
    assert read_user_text(tmp_path / "marked", 100) == "name: a"
