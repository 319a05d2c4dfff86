"""Saved answers, texts and tables say what the server would have said."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.lab.sample_traces import usage_trace
from tests.traces.prometheus.exposition import exposition, openmetrics, samples
from traces.load import load
from traces.prometheus.matrix import MatrixReader
from traces.readers import query_range
from traces.schema import UsageTrace
from twinbed import TraceError


def matrices(trace: UsageTrace) -> list[dict[str, object]]:
    """Return an answer of query_range for each metric."""
    series: dict[tuple[str, str], list[list[object]]] = defaultdict(list)
    for metric, labels, value, time_s in samples(trace):
        series[metric, labels].append([time_s, repr(value)])
    answers: dict[str, list[dict[str, object]]] = defaultdict(list)
    for (metric, labels), values in series.items():
        own = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
        answers[metric].append({"metric": {"__name__": metric, **own}, "values": values})
    return [
        {"status": "success", "data": {"resultType": "matrix", "result": result}}
        for result in answers.values()
    ]


def one_after_the_other(trace: UsageTrace) -> str:
    return "\n".join(json.dumps(answer, separators=(",", ":")) for answer in matrices(trace))


def spread_out(trace: UsageTrace) -> str:
    return "\n".join(json.dumps(answer, indent=2) for answer in matrices(trace))


def grafana(trace: UsageTrace) -> str:
    columns: dict[str, dict[float, float]] = defaultdict(dict)
    for metric, labels, value, time_s in samples(trace):
        columns[f"{metric}{{{labels}}}"][time_s] = value
    times = sorted({time_s for own in columns.values() for time_s in own})
    lines = [["Time", *columns]]
    lines += [
        [str(int(time_s * 1000)), *(repr(own.get(time_s, "")) for own in columns.values())]
        for time_s in times
    ]
    from io import StringIO

    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().replace("''", "")


def marked(text: str) -> bytes:
    """Return the text as some programs of Windows save it."""
    return b"\xef\xbb\xbf" + text.encode()


@pytest.mark.parametrize(
    "stored",
    [str.encode, marked, lambda text: gzip.compress(text.encode()), lambda text: gzip.compress(marked(text))],
    ids=["plain", "marked", "gzipped", "both"],
)
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("shop.json", one_after_the_other),
        ("shop.txt", spread_out),
        ("shop.om", lambda trace: openmetrics(samples(trace))),
        ("shop.prom", lambda trace: exposition(samples(trace))),
        ("grafana.csv", grafana),
    ],
)
def test_every_form_is_recognised_and_gives_the_trace(
    name: str, write: Callable[[UsageTrace], str], stored: Callable[[str], bytes], tmp_path: Path
) -> None:
    original = usage_trace()
    (tmp_path / name).write_bytes(stored(write(original)))
    found = load(tmp_path / name)
    place = {text: column for column, text in enumerate(found.containers)}
    columns = [
        place[f"{app}/{name}/{name}"] for app, name in zip(original.apps, original.containers, strict=True)
    ]
    assert found.shape == original.shape
    assert found.interval_s == pytest.approx(original.interval_s)
    assert (found.present[:, columns] == original.present).all()
    np.testing.assert_allclose(found.cpu_cores[:, columns], original.cpu_cores, atol=1e-5)
    np.testing.assert_allclose(found.memory_bytes[:, columns], original.memory_bytes, rtol=1e-9)


def test_blank_lines_after_the_end_of_openmetrics_change_no_time(tmp_path: Path) -> None:
    text = openmetrics(samples(usage_trace()))
    (tmp_path / "shop.om").write_text(text)
    (tmp_path / "blank.om").write_text(text + "\n \n")
    assert load(tmp_path / "blank.om").interval_s == load(tmp_path / "shop.om").interval_s


def test_metrics_that_are_not_read_may_have_any_value(tmp_path: Path) -> None:
    text = exposition(samples(usage_trace()))
    others = [("node_network_speed_bytes", "-125000"), ("process_virtual_memory_max_bytes", "+Inf")]
    dump = "".join(f'{name}{{job="node"}} {value} 1700000040000\n' for name, value in others)
    (tmp_path / "dump.prom").write_text(dump + text)
    (tmp_path / "shop.prom").write_text(text)
    found, alone = (load(tmp_path / name) for name in ("dump.prom", "shop.prom"))
    np.testing.assert_array_equal(found.cpu_cores, alone.cpu_cores)


@pytest.mark.parametrize("write", [one_after_the_other, lambda trace: openmetrics(samples(trace))])
def test_gzip_data_that_are_cut_or_expand_without_measure_are_refused(
    write: Callable[[UsageTrace], str], tmp_path: Path
) -> None:
    path, text = tmp_path / "shop.gz", write(usage_trace())
    path.write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(TraceError, match=r"shop.gz: the gzip data is cut short or damaged; save it again"):
        load(path)
    path.write_bytes(gzip.compress(text.encode() + (b" " * 1023 + b"\n") * (9 << 10)))
    with pytest.raises(TraceError, match="expands to more than 8 MiB, over 100 times its size; decompress"):
        load(path)


def test_legends_need_a_quantity(tmp_path: Path) -> None:
    path = tmp_path / "panel.csv"
    path.write_text(
        '"Time","web","db"\n2024-05-01 10:00:00,250,\n'
        "2024-05-01 10:00:30,500,100\n2024-05-01 10:01:00,750,undefined\n"
    )
    with pytest.raises(
        TraceError, match="'web' is a legend, which has no unit; give --trace-option quantity="
    ):
        load(path)
    trace = load(path, quantity="cpu_millicores")
    assert trace.containers == ("db", "web")
    assert trace.cpu_cores[:, 1].tolist() == [0.25, 0.5, 0.75]
    assert trace.interval_s == 30


def test_a_hole_in_a_panel_does_not_change_its_step(tmp_path: Path) -> None:
    path = tmp_path / "panel.csv"
    path.write_text("Time,web\n1714557600000,1\n1714557615000,2\n1714557645000,4\n")
    trace = load(path, quantity="cpu_cores")
    assert trace.interval_s == 15
    assert trace.cpu_cores[:, 0].tolist() == [1, 2, 2, 4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "sep=,\nTime,web\n",
            "line 1: is for Excel; delete it, or switch Grafana's 'Download for Excel' off",
        ),
        (
            "Time,web\n2024-05-01 10:00:00,250 m\n",
            "'250 m', expected a finite number.*switch 'Formatted data' off",
        ),
        ("Time;web\n", "line 1: expected ',' between fields"),
    ],
)
def test_what_grafana_was_asked_to_change_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "panel.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        load(path, quantity="cpu_cores")


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_pieces_of_any_size_give_the_same_series(size: int) -> None:
    values = [[1, "2"], [2.5, "NaN"], [3, "4.5"], [4, "+Inf"]]
    tricky = {"__name__": "a", "path": 'x"values":[[1,"2"]]'}
    result = [{"metric": tricky, "values": values}, {"metric": {"__name__": "b"}, "values": []}]
    answer = {"status": "success", "warnings": ["slow"], "data": {"resultType": "matrix", "result": result}}
    compact, wide = json.dumps(answer, separators=(",", ":")), json.dumps(answer, indent=3)
    for text in (compact, json.dumps(answer), wide):
        reader = MatrixReader("here")
        for start in range(0, len(text), size):
            reader.feed(text[start : start + size].encode())
        (found,) = reader.close()
        assert [entry.metric for entry in found.series] == ["a", "b"]
        assert found.series[0].labels == {"path": tricky["path"]}
        assert found.series[0].times_s.tolist() == [1, 3]
        assert found.series[0].values.tolist() == [2, 4.5]
        assert [entry.dropped for entry in found.series] == [2, 0]
        assert found.warnings == ("slow",)


def test_a_cell_without_a_sample_is_no_sample_that_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "panel.csv"
    series = [f'"{CPU}{{pod=""{pod}"",container=""c""}}"' for pod in ("early", "late")]
    rows = [f"{30_000 * k},{15 * k if k < 10 else ''},{15 * k if k >= 5 else ''}" for k in range(20)]
    path.write_text("\n".join([f"Time,{','.join(series)}", *rows]) + "\n")
    found = load(path)
    assert found.present.sum(axis=0).tolist() == [9, 14]
    assert not [note for note in found.notes if "NaN" in note]


def test_samples_that_are_no_number_are_counted_and_told(tmp_path: Path) -> None:
    path = tmp_path / "shop.json"
    for changed, words in ((0, []), (1, ["1 sample is"]), (3, ["3 samples are"])):
        answers = matrices(usage_trace())
        values = answers[0]["data"]["result"][0]["values"]  # type: ignore[index]
        for number, text in enumerate(("NaN", "+Inf", "-Inf")[:changed]):
            values[number + 1][1] = text
        path.write_text("\n".join(map(json.dumps, answers)))
        told = [note for note in load(path).notes if "NaN or infinite" in note]
        assert [note.split(" NaN")[0] for note in told] == words


CPU = "container_cpu_usage_seconds_total"


def matrix(inner: str) -> str:
    return '{"status":"success","data":{"resultType":"matrix","result":[' + inner + "]}}"


SAMPLE = '"values":[[1,"2"]]}'
NO_END = matrix('{"metric":{},"values":[[1,"2"')[:-3]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"status":"error","errorType":"bad_data","error":"no"}', "server's error is saved here"),
        ("a.json", '{"status":"success","data":{"resultType":"vector","result":[]}}', "expected 'matrix'"),
        ("a.json", matrix(""), "the file has no series"),
        ("a.json", matrix('{"metric":{},' + SAMPLE), "has no metric name, so its unit is unknown"),
        ("a.json", matrix('{"metric":{"__name__":"up"},' + SAMPLE), f"no series {CPU} with samples"),
        ("a.json", '{"some": "thing"}', "JSON, but not an answer of Prometheus"),
        ("a.json", NO_END, "cut short"),
        (
            "a.json",
            '{"metric":{"__name__":"up"},"values":[1,2],"timestamps":[0,1]}\n',
            "save /api/v1/export/prometheus",
        ),
        ("a.om", "# TYPE x counter\nx_total 1\n# EOF\n", "line 2: a sample without a time"),
        ("a.om", "# TYPE x counter\nx_total{a=b} 1 2\n# EOF\n", 'are not label="text"'),
        ("a.om", "# TYPE x counter\nx_total one 2\n# EOF\n", "value or the time is not a number"),
        ("a.om", "# TYPE x counter\n# EOF\nx_total 1 2\n", "line 3: text after '# EOF'"),
        ("a.om", "# TYPE x counter\n?\n", "line 2: expected name"),
        ("a.om", "# EOF\n", "no samples"),
        ("a.om", f'{CPU}{{pod="a",container="a"}} 1 1000\n', "has one sample; a counter needs two"),
        (
            "a.om",
            f'{CPU}{{pod="a",container="a"}} 1 1774740000\n',
            "seconds, end the file with a line '# EOF'",
        ),
        ("a.om", f'{CPU}{{pod="a",container="a"}} 1 1774740000000\n# EOF\n', "divide milliseconds by 1000"),
        ("a.om", f'{CPU}{{pod_name="a",container_name="b"}} 1 1\n# EOF\n', 'first has {container_name="b"'),
        ("a.om", f'{CPU}{{pod="a",container="b",cpu="cpu00"}} 1 1\n# EOF\n', "needs the labels pod and con"),
        ("a.csv", "Time,a\n1000,1\n", "is a legend"),
        ("a.csv", "Time,a\n1730000000,1\n", "if these are seconds, multiply them by 1000"),
    ],
)
def test_what_is_no_history_is_told_in_one_line(name: str, text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TraceError) as error:
        load(path)
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_partial_answer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**matrices(usage_trace())[0], "isPartial": True}))
    with pytest.raises(TraceError, match="says that this answer is partial"):
        query_range.history(path)


def test_far_times_do_not_make_a_large_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.prom"
    lines = (f'{CPU}{{pod="a",container="a"}} 1 {time}\n' for time in (0, 1, 10**14))
    path.write_text("".join(lines))
    with pytest.raises(TraceError, match="more than 12000000 cells"):
        load(path)


def test_an_option_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.om"
    path.write_text(openmetrics(samples(usage_trace())))
    assert load(path, step_s="2").interval_s == 2
    with pytest.raises(TraceError, match="option 'step_s' of format openmetrics"):
        load(path, step_s="soon")
    with pytest.raises(TraceError, match="expected a millisecond or more"):
        load(path, step_s=0)


def test_a_spread_out_answer_may_stand_before_a_compact_one() -> None:
    reader = MatrixReader("here")
    answers = matrices(usage_trace())
    for text in (json.dumps(answers[0], indent=1), json.dumps(answers[1], separators=(",", ":"))):
        reader.feed(text.encode())
    assert [len(answer.series) for answer in reader.close()] == [3, 3]


def lines_of(metric: str, pod: str, values: Iterable[object]) -> list[str]:
    own = f'namespace="shop",pod="{pod}",container="app"'
    return [f"{metric}{{{own}}} {value} {30_000 * row}" for row, value in enumerate(values)]


@pytest.mark.parametrize("order", ["series after series", "scrape after scrape"])
def test_long_texts_tell_the_same_in_any_order(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.readers.openmetrics.PIECE_BYTES", 100_000)
    count = 3_000
    told = [lines_of(CPU, f"web-{pod}", (pod * 3.0 * row for row in range(count))) for pod in (1, 2)]
    told.append(lines_of("container_memory_working_set_bytes", "web-1", range(count)))
    # A stale marker, an exemplar and a second blank are no plain numbers.
    told[1][1_000] = told[1][1_000].replace(" 6000.0 ", " NaN ")
    told[0][2_000] += ' # {trace_id="}"} 1 2'
    told[2][7] = told[2][7].replace(" 7 ", "  7 ")
    path = tmp_path / "shop.prom"
    parts = zip(*told, strict=True) if order == "scrape after scrape" else told
    path.write_text("\n".join(line for part in parts for line in part) + "\n")
    found = load(path)
    assert found.containers == ("shop/web-1/app", "shop/web-2/app")
    assert found.shape == (count - 1, 2)
    assert found.present.all()
    np.testing.assert_allclose(found.cpu_cores, [[0.1, 0.2]] * (count - 1))
    assert found.memory_bytes[:, 0].tolist() == list(range(1, count))


def test_the_line_that_is_wrong_is_named_far_into_a_text(tmp_path: Path) -> None:
    path = tmp_path / "shop.prom"
    lines = lines_of(CPU, "web-1", range(3_000))
    lines[2_500] = lines[2_500].replace(" 2500 ", " many ")
    path.write_text("\n".join(lines))
    with pytest.raises(TraceError, match="line 2501: the value or the time is not a number"):
        load(path)


def counter(times_s: np.ndarray, pod: str = "db-0") -> str:
    """Return the lines of a container that uses a quarter of a core."""
    first = float(times_s[0])
    return "".join(
        f'{CPU}{{namespace="shop",pod="{pod}",container="db"}} {10 + 0.25 * (at - first)!r} {at!r}\n'
        for at in times_s.tolist()
    )


@pytest.mark.parametrize("apart_s", [15.0, 300.0, 600.0])
def test_scrapes_that_come_a_little_late_are_no_holes(apart_s: float, tmp_path: Path) -> None:
    late_s = np.round(np.random.default_rng(5).normal(0, 0.3, 49), 3)
    (tmp_path / "a.om").write_text(counter(1774740000 + apart_s * np.arange(49) + late_s) + "# EOF\n")
    trace = load(tmp_path / "a.om")
    assert trace.present.all()
    assert trace.interval_s == apart_s
    np.testing.assert_allclose(trace.cpu_cores, 0.25, rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_scrapes_of_which_no_two_are_equally_far_apart_have_the_mean_distance(
    seed: int, tmp_path: Path
) -> None:
    at_s = 1_700_000_000 + 30 * np.arange(121) + np.random.default_rng(seed).uniform(0, 2, 121)
    labels = 'namespace="s",pod="db-0",container="db"'
    lines = [f"container_cpu_usage_seconds_total{{{labels}}} {i} {at:.3f}" for i, at in enumerate(at_s)]
    path = tmp_path / "late.txt"
    path.write_text("\n".join(["# TYPE container_cpu_usage_seconds counter", *lines, "# EOF"]) + "\n")
    assert load(path).interval_s == pytest.approx(30.0, abs=0.1)


def answer(told: Iterable[tuple[float, float]]) -> str:
    """Return a server's answer for one counter of CPU."""
    labels = {"__name__": "container_cpu_usage_seconds_total", "pod": "db-0", "container": "db"}
    result = [{"metric": labels, "values": [[time_s, repr(value)] for time_s, value in told]}]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


@pytest.mark.parametrize("scrape_s", [45, 60, 90, 120])
def test_repeats_of_a_scrape_are_no_idle_intervals(scrape_s: int, tmp_path: Path) -> None:
    # The container uses 0.9 cores throughout, and the answer's step is 30 s.
    own = tmp_path / "own.json"
    own.write_text(answer((time_s, 0.9 * (time_s // scrape_s * scrape_s)) for time_s in range(0, 3600, 30)))
    trace = load(own)
    used = trace.cpu_cores[:, 0][trace.present[:, 0]][:110]
    assert used.max() <= 0.9 * (1.5 if scrape_s == 45 else 1) + 1e-9
    assert used.min() >= 0.45 if scrape_s == 45 else used.min() == pytest.approx(0.9)
    assert any("1 of 1 counter of CPU is scraped less often than every 30 s" in note for note in trace.notes)


def test_a_container_that_idles_is_not_evened_out(tmp_path: Path) -> None:
    busy = np.random.default_rng(0).random(120) < 0.3
    own = tmp_path / "own.json"
    own.write_text(answer(zip(range(0, 3600, 30), np.cumsum(27.0 * busy).tolist(), strict=True)))
    assert set(load(own).cpu_cores[:, 0].round(9).tolist()) == {0.0, 0.9}


def test_containers_that_are_left_out_are_told(tmp_path: Path) -> None:
    often, once = 1774740000.0 + 15 * np.arange(41), np.array([1774740000.0])
    (tmp_path / "a.om").write_text(counter(often) + counter(once, "db-1") + "# EOF\n")
    trace = load(tmp_path / "a.om")
    assert trace.containers == ("shop/db-0/db",)
    assert "1 container is left out: no two samples at most 300 s apart." in trace.notes
    assert "No kube_pod_owner names the workload of 1 pod; the pod's name shows it instead." in trace.notes
