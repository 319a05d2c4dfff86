"""A worker writes the files that travel to it where nobody else can have written."""

import hashlib
import os
import tempfile

import pytest

dask = pytest.importorskip("lab.engine.dask", reason="twinbed[scale] is not installed")

CONTENT = b"container,cpu_cores\na,1\n"


@pytest.fixture
def about(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return dask._Input("trace.csv", hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_written_once_and_read_by_its_owner_alone(about):
    place = dask._placed(about, CONTENT)
    written_ns = place.stat().st_mtime_ns
    assert dask._placed(about, CONTENT) == place
    assert (place.read_bytes(), place.stat().st_mtime_ns) == (CONTENT, written_ns)
    assert place.parent.parent.stat().st_mode & 0o777 == 0o700


def test_other_content_of_the_same_size_is_replaced(about):
    place = dask._placed(about, CONTENT)
    place.write_bytes(CONTENT.replace(b"1", b"2"))
    assert dask._placed(about, CONTENT).read_bytes() == CONTENT


def test_a_folder_that_is_a_link_or_open_to_others_is_refused(about, tmp_path):
    place = dask._placed(about, CONTENT)
    own = place.parent.parent
    own.chmod(0o777)
    with pytest.raises(OSError, match="not this user's own folder"):
        dask._placed(about, CONTENT)
    own.rename(tmp_path / "elsewhere")
    own.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not this user's own folder"):
        dask._placed(about, CONTENT)


def test_a_file_that_no_unit_has_used_for_long_goes_with_the_next_new_one(about):
    place = dask._placed(about, CONTENT)
    more = hashlib.sha256(b"more").hexdigest()
    dask._placed(dask._Input("more.csv", more), b"more")
    for name in (about.sha256, more):
        os.utime(place.parent.parent / name, (0, 0))
    dask._placed(about, CONTENT)
    last = dask._placed(dask._Input("last.csv", hashlib.sha256(b"last").hexdigest()), b"last")
    assert {*place.parent.parent.iterdir()} == {place.parent, last.parent}
