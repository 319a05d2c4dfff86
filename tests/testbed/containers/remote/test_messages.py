"""The generated code is that of the .proto files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.containers.remote.messages_pb2 import Order, Report
from testbed.containers.remote.service import decode_order, decode_report

ROOT = Path(__file__).parents[4]


def test_generating_it_again_gives_the_same(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    subprocess.run(
        [ROOT / "tools" / "protobuf", tmp_path], check=True, env={**os.environ, "PYTHON": sys.executable}
    )
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["chakra_pb2.py", "chakra_pb2.pyi", "messages_pb2.py", "messages_pb2.pyi"]
    for name in made:
        folder = "traces/readers" if "chakra" in name else "testbed/containers/remote"
        assert (tmp_path / name).read_text() == (ROOT / folder / name).read_text()


@given(data=st.binary(max_size=500))
@settings(max_examples=100, deadline=None)
def test_bytes_are_a_message_or_nothing(data: bytes) -> None:
    assert isinstance(decode_report(data), Report | None)
    assert isinstance(decode_order(data), Order | None)
