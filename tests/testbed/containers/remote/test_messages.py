"""The generated code is that of messages.proto."""

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
    for name in ("messages_pb2.py", "messages_pb2.pyi"):
        assert (tmp_path / name).read_text() == (ROOT / "testbed/containers/remote" / name).read_text()


@given(data=st.binary(max_size=500))
@settings(max_examples=100, deadline=None)
def test_bytes_are_a_message_or_nothing(data: bytes) -> None:
    assert isinstance(decode_report(data), Report | None)
    assert isinstance(decode_order(data), Order | None)
