"""The BPF programs compile, once, and say what is missing where they cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernel import build
from kernel.records import PERIOD, PRESSURE
from twinbed import BackendError

needs_clang = pytest.mark.skipif(
    not any(map(shutil.which, build._COMPILERS)), reason="clang is not installed (make system-vm)"
)


@needs_clang
def test_the_programs_compile_and_are_compiled_once(tmp_path: Path) -> None:
    built = build.object_file(tmp_path)
    assert built.read_bytes().startswith(b"\x7fELF")
    assert [file.name for file in built.parent.iterdir()] == [built.name]
    before = built.stat()
    assert build.object_file(tmp_path) == built
    assert built.stat() == before


@needs_clang
def test_a_source_that_does_not_compile_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "broken.bpf.c"
    source.write_text("int x = ;")
    monkeypatch.setattr(build, "SOURCE", source)
    with pytest.raises(BackendError, match=r"broken\.bpf\.c: clang refused it .*error"):
        build.object_file(tmp_path)
    assert list((tmp_path / "bpf").iterdir()) == []


def test_without_a_compiler_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="no clang to compile it with; install it: make system-vm"):
        build.object_file(tmp_path)


def test_a_compiler_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\nexec sleep 60\n")
    clang.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(build, "_TIMEOUT_S", 0.2)
    with pytest.raises(BackendError, match=r"containers\.bpf\.c: clang has not ended after 0\.2 s"):
        build.object_file(tmp_path)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = tmp_path / "clang"
    clang.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match=r"clang/bpf: cannot be made \(Not a directory\); set XDG_CACHE"):
        build.object_file(clang)


def test_records_are_as_long_as_the_structs() -> None:
    assert (PERIOD.itemsize, PRESSURE.itemsize) == (5 * 8 + 4 * 4, 4 * 8 + 2 * 4)
