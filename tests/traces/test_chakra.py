"""Chakra execution traces: what a step computes and communicates, and what is no such trace."""

import gzip

import pytest

from tests.traces.sample_chakra import collective, framed, node, step, written
from traces.readers import chakra
from traces.readers.chakra_pb2 import GlobalMetadata
from traces.readers.job_trace import UNMARKED
from twinbed import TraceError


@pytest.mark.parametrize("name", ["a.et", "a.et.gz", "a.json"])
def test_a_step_is_played_by_its_dependencies(name, tmp_path):
    trace = chakra.read(written(tmp_path / name, step()))
    assert (trace.rank, trace.ranks, trace.on_gpu, trace.number.tolist()) == (None, 8, True, [UNMARKED])
    # Kernels run from 10 to 60 and 60 to 80; all-reduce from 20 to 60, hidden; all-gather from 80 to 85.
    assert trace.step_s == pytest.approx([85e-6])
    assert trace.compute_s == pytest.approx([70e-6])
    assert trace.communication_s == pytest.approx([45e-6])
    assert trace.exposed_s == pytest.approx([5e-6])
    calls = [(call.operation, call.size_bytes, call.element_bytes, call.ranks) for call in trace.collectives]
    assert calls == [("all_reduce", 4000, 2, 8), ("all_gather", 80, 4, 2)]


def test_begins_that_are_in_the_trace_count(tmp_path):
    nodes = step()
    for own, begin in zip(nodes, (0, 0, 10, 10, 60, 60, 100), strict=True):
        own.start_time_micros = begin
    trace = chakra.read(written(tmp_path / "a.et", nodes))
    assert trace.step_s == pytest.approx([105e-6])
    assert trace.exposed_s == pytest.approx([25e-6])


def test_marked_steps_are_told_apart_and_operators_compute_without_a_gpu(tmp_path):
    nodes = [
        node(1, "ProfilerStep#4"),
        node(2, "aten::mm", duration_us=10, deps=[1]),
        node(3, "ProfilerStep#5", deps=[2]),
        node(4, "aten::mm", duration_us=20, deps=[3]),
    ]
    trace = chakra.read(written(tmp_path / "a.et", nodes), 4)
    assert trace.number.tolist() == [4, 5]
    assert trace.step_s == pytest.approx([10e-6, 20e-6])
    assert trace.compute_s == pytest.approx([10e-6, 20e-6])
    assert (trace.ranks, trace.on_gpu) == (4, False)


def test_the_numbers_of_fields_are_those_of_the_schema(tmp_path):
    """Bytes by hand: fields and values that are not read are skipped."""
    metadata = b"\x0a\x050.0.4" + b"\x12\x0e" + b"\x0a\x03pid" + b"\x19" + bytes(8)  # attr: a double_val
    kernel = b"\x08\x07" + b"\x12\x02mm" + b"\x18\x04" + b"\x38\x09" + b"\x4a\x04\x0a\x02[]"  # outputs
    size = b"\x0a\x09comm_size" + b"\x48\xe8\x07"  # int64_val = 1000
    kind = b"\x0a\x09comm_type" + b"\x48\x07"  # REDUCE_SCATTER
    call = b"\x08\x08" + b"\x18\x07" + b"\x2a\x01\x07" + b"\x38\x03"
    call += b"".join(b"\x52" + bytes([len(attr)]) + attr for attr in (size, kind))
    call += b"\x5a\x02\x08\x01"  # storage
    path = tmp_path / "a.et"
    path.write_bytes(framed([metadata, kernel, call]))
    trace = chakra.read(path, 4)
    assert trace.step_s == pytest.approx([12e-6])
    (found,) = trace.collectives
    assert (found.operation, found.size_bytes, found.ranks) == ("reduce_scatter", 1000, 4)


@pytest.mark.parametrize(
    ("nodes", "ranks", "message"),
    [
        ([], 8, "no nodes"),
        ([node(1, "a", duration_us=5)], None, "give --ranks N"),
        ([node(1, "a", duration_us=5, deps=[9])], 8, "depends on node 9, which is not in the trace"),
        ([node(1, "a", deps=[2]), node(2, "b", deps=[1])], 8, "2 of its nodes wait for each other"),
        ([node(1, "a"), node(1, "b")], 8, "two nodes have one id"),
        ([node(1, "a"), node(2, "b", deps=[1])], 8, "take no time or do not follow each other"),
        ([collective(1, 77, 5, [], 10, "0")], 8, "node 1: no known comm_type"),
        ([node(1, "x", "COMM_SEND_NODE", 5)], 8, "node 1: no comm_size"),
        (
            [collective(1, 0, 5, [], 10, "7"), collective(2, 0, 5, [], 10, "8")],
            8,
            "process group '7': its size is not in the trace",
        ),
    ],
)
def test_what_a_trace_lacks_is_said_in_one_line(nodes, ranks, message, tmp_path):
    path = written(tmp_path / "a.et", nodes)
    with pytest.raises(TraceError) as error:
        chakra.read(path, ranks)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert str(error.value).isprintable()


LONG = framed([GlobalMetadata(version="0.0.4")]) + b"\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no Chakra trace"),
        (b"hello, world", "ends inside a node"),
        (framed([node(1, "a")]), "no Chakra trace"),
        (b'{"traceEvents": []}', "no Chakra trace"),
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "run chakra_converter PyTorch"),
        (b'{"version": "0.0.4"} {"id": [1]}', "another form than Chakra's"),
        (b'{"version": "0.0.4"} {"id": 1', "end early"),
        (b'{"version": "0.0.4"} {"name": "\xff"}', "not UTF-8"),
        (framed([GlobalMetadata(version="0.0.4"), b"\x0a"]), "another form than Chakra's"),
        (framed([GlobalMetadata(version="0.0.4")]) + b"\x05ab", "ends inside a node"),
        (framed([GlobalMetadata(version="0.0.4")]) + b"\xff" * 9, "no length before a node"),
        (LONG, "a message of 268,435,455 bytes"),
        (
            gzip.compress(framed([GlobalMetadata(version="0.0.4"), *step()]), mtime=0)[:-9],
            "the gzip data is cut short or damaged",
        ),
    ],
)
def test_other_files_are_refused(content, message, tmp_path):
    path = tmp_path / "a.et"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        chakra.read(path, 8)


def test_a_packed_file_of_nothing_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(chakra, "MOST_NODES", 1000)
    path = tmp_path / "a.et.gz"
    path.write_bytes(gzip.compress(framed([GlobalMetadata(version="0.0.4")]) + bytes(20_000_000)))
    with pytest.raises(TraceError, match="more than 1,000 nodes"):
        chakra.read(path, 8)


def test_a_message_of_point_to_point_takes_two_ranks(tmp_path):
    nodes = [
        node(1, "aten::mm", duration_us=5),
        node(2, "ncclDevKernel_SendRecv", "COMM_SEND_NODE", 3, [1], is_cpu_op=False, comm_size=64),
    ]
    (call,) = chakra.read(written(tmp_path / "a.et", nodes), 8).collectives
    assert (call.operation, call.size_bytes, call.ranks) == ("sendrecv", 64, 2)
