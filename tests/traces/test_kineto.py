"""Kineto traces: what a step computes and communicates, on a GPU and without, and what is no such trace."""

import gzip
import json

import pytest

from traces.readers import json_stream, kineto
from twinbed import TraceError

HEAD = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}}


def span(kind, name, begin_us, duration_us, **args):
    return {"ph": "X", "cat": kind, "name": name, "ts": begin_us, "dur": duration_us, "args": args}


def reduced(begin_us, duration_us, **args):
    given = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "dtype": "BFloat16",
    }
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return span("kernel", name, begin_us, duration_us, **(given | {"Group size": 8} | args))


GPU = [
    span("user_annotation", "ProfilerStep#7", 0, 90),
    span("user_annotation", "ProfilerStep#8", 90, 90),
    span("gpu_user_annotation", "ProfilerStep#7", 100, 100),
    span("gpu_user_annotation", "ProfilerStep#8", 200, 80),
    span("cpu_op", "aten::mm", 0, 180),  # Operators only start kernels here.
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1},
    *(span("kernel", "sgemm", begin, 40) for begin in (100, 150, 200)),
    reduced(130, 50),
    reduced(245, 20),
    span("kernel", "ncclDevKernel_AllGather_RING_LL", 266, 4, **{
        "Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 20, "dtype": "Float",
        "Group size": 2,
    }),
]  # fmt: skip


def written(path, events, head=HEAD):
    text = json.dumps(head | {"traceEvents": events, "traceName": "é.json"}, indent=1, ensure_ascii=False)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_kernels_of_a_gpu_compute_and_nccls_communicate(name, tmp_path):
    trace = kineto.read(written(tmp_path / name, GPU))
    assert (trace.rank, trace.ranks, trace.on_gpu) == (3, 8, True)
    assert trace.number.tolist() == [7, 8]
    assert trace.step_s == pytest.approx([100e-6, 80e-6])
    assert trace.compute_s == pytest.approx([80e-6, 40e-6])
    # The first is hidden for 40 of its 50 µs: 130 to 140 and 150 to 180.
    assert trace.communication_s == pytest.approx([50e-6, 24e-6])
    assert trace.exposed_s == pytest.approx([10e-6, 24e-6])
    calls = [(call.operation, call.size_bytes, call.ranks, call.step) for call in trace.collectives]
    assert calls == [("all_reduce", 2000, 8, 0), ("all_reduce", 2000, 8, 1), ("all_gather", 80, 2, 1)]


def test_without_the_gpus_own_marks_the_last_step_is_left_out(tmp_path):
    events = [event for event in GPU if event.get("cat") != "gpu_user_annotation"]
    assert kineto.read(written(tmp_path / "a.json", events)).number.tolist() == [7]


def test_a_trace_longer_than_a_piece_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "MIB", 100)
    events = [span("user_annotation", f"ProfilerStep#{step}", 10 * step, 10) for step in range(2000)]
    assert len(kineto.read(written(tmp_path / "a.json", events)).number) == 2000


STEP = span("user_annotation", "ProfilerStep#1", 0, 9)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "no ProfilerStep; call profiler.step()"),
        ([STEP, span("user_annotation", "gloo:all_reduce", 1, 2)], "profile with record_shapes=True"),
        ([STEP, span("kernel", "sgemm", 1, 2), span("kernel", "ncclKernel", 1, 2)], "PyTorch 2.4 or later"),
        ([STEP, span("kernel", "sgemm", 1, 2), reduced(1, 2, dtype="Odd")], "type 'Odd' have no known size"),
        ([span("user_annotation", "ProfilerStep#1", 0, -9)], "of another form"),
        ([span("cpu_op", "a", float("nan"), 1)], "of another form"),
        ([{"ph": "X", "cat": "cpu_op"}], "of another form"),
        (["text"], "of another form"),
    ],
)  # fmt: skip
def test_what_a_trace_lacks_is_said_in_one_line(events, message, tmp_path):
    path = written(tmp_path / "a.json", events)
    with pytest.raises(TraceError) as error:
        kineto.read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}', 'no "traceEvents"'),
        (b'{"traceEvents": [{"ph": "X"', "end early"),
        (b'{"a": nothing, "traceEvents": []}', "not JSON"),
        (b'{"traceEvents": [ "\xff"]}', "not UTF-8"),
        (
            gzip.compress(b'{"traceEvents": [' + b" " * 100, mtime=0)[:-9],
            "the gzip data is cut short or damaged",
        ),
    ],
)
def test_other_files_are_refused(content, message, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        kineto.read(path)


def test_a_packed_file_of_nothing_but_blanks_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "MOST_TEXT_BYTES", 10_000_000)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 20_000_000))
    with pytest.raises(TraceError, match="profile fewer steps"):
        kineto.read(path)


def test_collectives_are_counted_while_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto, "MOST_COLLECTIVES", 2)
    path = written(tmp_path / "a.json", [*GPU, *(reduced(1000 + k, 1) for k in range(3))])
    path.write_text(path.read_text()[:-40])
    with pytest.raises(TraceError, match="more than 2 collectives; profile fewer steps"):
        kineto.read(path)
