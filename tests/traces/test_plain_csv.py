from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from traces.load import load
from traces.readers import table
from twinbed import TraceError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "it.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_wide_columns_are_cores_unless_their_name_says_otherwise(write: Write) -> None:
    trace = load(write("time,web,web.memory_mib,db.1.cpu_percent\n0,0.5,1,50\n0.1,0.25,2,100\n"), app="shop")
    assert trace.containers == ("web", "db.1")
    assert trace.apps == ("shop", "shop")
    assert trace.interval_s == 0.1
    assert trace.cpu_cores.tolist() == [[0.5, 0.5], [0.25, 1.0]]
    assert trace.memory_bytes.tolist() == [[2.0**20, 0.0], [2.0**21, 0.0]]
    assert trace.notes[0] == "Read it.csv: the times are 0.1 s apart, which is taken as the interval."


def test_long_lines_may_come_in_any_order_of_containers(write: Write) -> None:
    trace = load(
        write(
            "container,app,time_ms,cpu_millicores,memory_bytes,rx_bytes,tx_bytes,throttled_s\n"
            "web,shop,1000,100,10,1,2,0.5\nweb,shop,2000,200,20,3,4,0\ndb,store,2000,300,30,5,6,0\n"
        )
    )
    assert (trace.containers, trace.apps) == (("web", "db"), ("shop", "store"))
    assert (trace.start_s, trace.interval_s) == (1.0, 1.0)
    assert trace.present.tolist() == [[True, False], [True, True]]
    assert trace.cpu_cores.tolist() == [[0.1, 0.0], [0.2, 0.3]]
    assert trace.rx_bytes is not None
    assert trace.rx_bytes.tolist() == [[1, 0], [3, 5]]
    assert trace.throttled_s is not None
    assert trace.throttled_s.tolist() == [[0.5, 0], [0, 0]]


@pytest.mark.parametrize(
    "times",
    [("2024-01-01T00:00:00Z", "2024-01-01T00:00:30Z"), ("2024-01-01 01:00:00+01:00", "2024-01-01 00:00:30")],
)
def test_times_may_be_iso_8601(write: Write, times: tuple[str, str]) -> None:
    trace = load(write(f"timestamp,web\n{times[0]},1\n{times[1]},2\n"))
    assert (trace.start_s, trace.interval_s) == (1704067200.0, 30.0)


def test_rounded_times_are_regular(write: Write) -> None:
    trace = load(write("time,web\n0.333,1\n0.667,1\n1.000,1\n1.333,1\n"))
    assert trace.interval_s == pytest.approx(1 / 3, abs=1e-6)


def test_numbers_are_read_to_the_bit(write: Write) -> None:
    values = np.random.default_rng(3).random(200)
    lines = "".join(f"{i},{v!r}\n" for i, v in enumerate(values.tolist()))
    assert load(write("time,web\n" + lines)).cpu_cores[:, 0].tolist() == values.tolist()


def test_empty_cells_at_the_ends_mean_that_the_container_is_not_there(write: Write) -> None:
    trace = load(write("time,web,db,db.memory_bytes\n0,1,,\n1,1,2,7\n2,,2,8\n\n"))
    assert trace.present.tolist() == [[True, False], [True, True], [False, True]]
    assert trace.memory_bytes[:, 1].tolist() == [0, 7, 8]


def test_gzip_and_a_byte_order_mark_are_read(write: Write) -> None:
    content = "\ufefftime, web\r\n0,1\r\n1,2\r\n".encode()
    for name in ("it.csv.gz", "it.csv", "-"):
        assert load(write(gzip.compress(content), name)).cpu_cores.tolist() == [[1], [2]]


def test_text_of_windows_in_utf16_is_named(write: Write) -> None:
    with pytest.raises(TraceError, match="UTF-16; save it as UTF-8"):
        load(write("time,web\r\n0,1\r\n".encode("utf-16")))


def test_blanks_around_a_name_do_not_count(write: Write) -> None:
    trace = load(write("time, my app , my app .memory_gib\n0,1,2\n1,1,2\n"))
    assert (trace.containers, trace.memory_bytes[0, 0]) == (("my app",), 2 * 2**30)


def test_a_single_time_needs_the_interval(write: Write) -> None:
    path = write("time,web\n0,1\n")
    with pytest.raises(TraceError, match="give --trace-option interval_s="):
        load(path)
    assert load(path, interval_s="0.5").interval_s == 0.5


WIDE = "time,web,db\n"
LONG = "container,time,cpu\n"
BAD = {
    "milliseconds as time": (
        "time,web\n1774740000000,1\n1774740015000,1\n",
        "milliseconds are a column time_ms",
    ),
    "nanoseconds": ("time,web\n1774740000000000000,1\n", "expected seconds, or ISO 8601 such as"),
    "a date of another form": ("time,web\n03/29/2026 10:00:00,1\n", "expected seconds, or ISO 8601 such as"),
    "tabs": ("time\tweb\n0\t1\n", "line 1: expected ',' between fields"),
    "NaN": (WIDE + "0,1,1\n1,nan,1\n", "line 3, column web: 'nan', expected a finite number"),
    "infinity": (WIDE + "0,1,inf\n1,1,1\n", "line 2, column db: 'inf', expected a finite number"),
    "negative": (WIDE + "0,1,1\n1,1,-0.5\n", "line 3, column db: '-0.5', expected zero or above"),
    "word": (WIDE + "0,1,1\n1,lots,1\n", "line 3, column web: 'lots', expected a finite number"),
    "hole": (WIDE + "0,1,1\n1,,1\n2,1,1\n", "line 3: cpu_cores of container 'web' is empty"),
    "time that is a word": (WIDE + "0,1,1\nsoon,1,1\n", "line 3, column time: 'soon'"),
    "ISO time that is wrong": (
        WIDE + "2024-01-01T00:00:00Z,1,1\n2024-01-41T00:00:00Z,1,1\n",
        "line 3, column time: '2024-01-41T00:00:00Z', expected an ISO 8601 time",
    ),
    "gap": (
        WIDE + "0,1,1\n1,1,1\n3,1,1\n",
        "line 4: time 3 s comes 2 s after 1 s, expected the interval of 1 s; --fill hold",
    ),
    "irregular": (WIDE + "0,1,1\n1,1,1\n2.5,1,1\n3.5,1,1\n", "line 4: time 2.5 s comes 1.5 s after 1 s"),
    "seconds that are called milliseconds": (
        "time_ms,container,cpu\n1730000000,a,1\n1730000060,a,1\n",
        "a time of 1730000000 in milliseconds is of 1970; if these are seconds, name the column time",
    ),
    "seconds under Grafana's name": (
        "Time,container,cpu\n1730000000,a,1\n1730000060,a,1\n",
        "name the column time",
    ),
    "containers that are sampled in turn": (
        "time,container,cpu\n" + "".join(f"{60 * k},a,1\n{60 * k + 15},b,1\n" for k in range(120)),
        "line 3: time 15 s comes 15 s after 0 s, expected the interval of 60 s; round all times to whole",
    ),
    "disorder": (WIDE + "1,1,1\n0,1,1\n", "line 3: time 0 s is before the 1 s of line 2"),
    "double time": (WIDE + "0,1,1\n0,1,1\n", "line 3: time 0 s appears twice"),
    "no rows": (WIDE, "no rows below the header"),
    "blank rows": (WIDE + "\n\n", "no rows below the header"),
    "nothing": ("", "the file is empty"),
    "double column": ("time,web,web\n0,1,1\n", "column 'web' appears twice in the header"),
    "double column by alias": (
        "time,web,web.cpu_millicores\n0,1,1\n1,1,1\n",
        "container 'web' has two columns for cpu_cores",
    ),
    "only a time": ("time\n0\n1\n", "no container column after 'time'"),
    "memory only": ("time,web.memory_mib\n0,1\n1,1\n", "no CPU column"),
    "misspelt unit": (
        "time,web,web.memory\n0,1,5\n1,1,5\n",
        "unknown column 'web.memory'; expected NAME.UNIT",
    ),
    "memory that is nearly a unit": (
        "time,web,web.mem_mib\n0,1,5\n1,1,5\n",
        "unknown column 'web.mem_mib'; expected NAME.UNIT",
    ),
    "CPU that is nearly a unit": ("time,web.millicores\n0,250\n1,250\n", "unknown column 'web.millicores'"),
    "memory while absent": (
        "time,web,web.memory_mib\n0,,5\n1,1,5\n",
        "line 2: container 'web' has memory_bytes but no CPU",
    ),
    "long line": (WIDE + "0,1,1\n1,1,1,1\n", "line 3 has more fields than the header: 4, and not 3"),
    "all lines long": (WIDE + "0,1,1,1\n1,1,1,1\n", "line 2 has more fields than the header"),
    "open quote": (LONG + 'web,0,1\n"web,1,1\n', "line 3: not CSV (unexpected end of data)"),
    "short line": (WIDE + "0,1,1\n1,1\n2,1,1\n", "line 3 has fewer fields than the header: 2, and not 3"),
    "other columns": ("foo,bar\n1,2\n", "not a trace: expected a 'container' and a 'time' column"),
    "semicolons": ("time;web\n0;1\n", "the file has time;web"),
    "binary": (b"time,web\n0,\x00\xff\xfe\n", "binary data, expected CSV text"),
    "Latin-1": (b"time,web\n0,1\n1,\xe9\n", "not UTF-8 text"),
    "container twice": (
        LONG + "web,0,1\nweb,1,1\nweb,1,2\n",
        "line 4: time 1 s of container 'web' appears twice",
    ),
    "clocks back": (
        "time,web\n2026-10-25T02:59:00,1\n2026-10-25T02:00:00,1\n",
        "where clocks went back, give times their zone",
    ),
    "long disorder": (LONG + "web,1,1\nweb,0,1\n", "line 3: time 0 s of container 'web' is before the 1 s"),
    "long gap": (
        LONG + "db,0,1\ndb,1,1\ndb,2,1\nweb,0,1\nweb,2,1\n",
        "line 6: a gap of 1 interval of container 'web' before it, expected a line every 1 s",
    ),
    "off the grid": (
        LONG + "db,0,1\ndb,1,1\ndb,2,1\nweb,0.5,1\n",
        "line 5: time 0.5 s comes 0.5 s after 0 s",
    ),
    "nameless": (LONG + "web,0,1\n,1,1\n", "line 3: the container has no name"),
    "unknown column": ("container,time,cpu,colour\nweb,0,1,2\n", "unknown column 'colour'"),
    "no CPU": ("container,time,memory_bytes\nweb,0,1\nweb,1,1\n", "no CPU column"),
    "two units": (
        "container,time,cpu,cpu_percent\nweb,0,1,1\n",
        "columns cpu and cpu_percent both give cpu_cores",
    ),
    "two time columns": ("container,time,time_ms,cpu\nweb,0,0,1\n", "columns time and time_ms mean the same"),
    "app that changes": (
        "container,app,time,cpu\nweb,a,0,1\nweb,b,1,1\n",
        "line 3: app 'b', but this container's app was 'a'",
    ),
    "empty long cell": (LONG + "web,0,1\nweb,1,\n", "line 3, column cpu: an empty cell"),
}


@pytest.mark.parametrize(("content", "words"), BAD.values(), ids=BAD.keys())
def test_a_file_that_is_wrong_gets_one_line_naming_where(write: Write, content: str, words: str) -> None:
    path = write(content)
    with pytest.raises(TraceError) as error:
        load(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert words in message
    assert "\n" not in message


def test_a_damaged_gzip_is_told_from_a_false_one(write: Write) -> None:
    whole = gzip.compress(("time,web\n" + "".join(f"{i},{i * 0.37}\n" for i in range(9999))).encode())
    for share in (0.01, 0.5, 0.999):
        with pytest.raises(TraceError, match="cut short or damaged"):
            load(write(whole[: int(len(whole) * share)], "it.csv.gz"))
    with pytest.raises(TraceError, match="it is not gzip data"):
        load(write("time,web\n0,1\n", "it.csv.gz"))


def test_a_file_beyond_the_cell_limit_is_refused(write: Write) -> None:
    with pytest.raises(TraceError, match="2 intervals × 3 containers are more than max_cells = 5"):
        load(write("time,a,b,c\n0,1,1,1\n1,1,1,1\n"), max_cells=5)
    with pytest.raises(TraceError, match="more than 3 rows"):
        load(write(LONG + "".join(f"web,{i},1\n" for i in range(9))), max_cells=3)
    # Few lines, but a large grid: each container is there at another time.
    with pytest.raises(TraceError, match="9 intervals × 9 containers"):
        load(write(LONG + "".join(f"c{i},{i},1\n" for i in range(9))), max_cells=80)


def test_namespace_pod_and_container_together_are_the_name(write: Write) -> None:
    trace = load(
        write("namespace,pod,container,time,cpu\na,web-1,app,0,1\nb,web-1,app,0,2\na,web-1,app,1,3\n")
    )
    assert trace.containers == ("a/web-1/app", "b/web-1/app")
    assert trace.cpu_cores.tolist() == [[1, 2], [3, 0]]


def test_grafanas_time_stands_in_a_long_file_too(write: Write) -> None:
    iso = load(write("Time,pod,cpu\n2024-05-01 10:00:00,web,1\n2024-05-01 10:01:00,web,2\n"))
    numbers = load(write("Time,pod,cpu\n1714557600000,web,1\n1714557660000,web,2\n"))
    assert iso.start_s == numbers.start_s == 1714557600
    assert iso.interval_s == numbers.interval_s == 60
    assert iso.containers == ("web",)


def test_a_part_of_a_name_must_not_be_empty(write: Write) -> None:
    with pytest.raises(TraceError, match=r"line 3: the pod has no name"):
        load(write("namespace,pod,time,cpu\na,web,0,1\na,,1,1\n"))


@pytest.mark.parametrize(
    ("fill", "expected"), [("hold", [1, 1, 1, 4]), ("zero", [1, 0, 0, 4]), ("linear", [1, 2, 3, 4])]
)
@pytest.mark.parametrize(
    "text",
    [
        "container,time,cpu\nweb,0,1\nlate,2,7\nweb,3,4\nlate,3,7\nlate,4,7\n",
        "time,web,late\n0,1,\n2,,7\n3,4,7\n4,,7\n",
    ],
)
def test_gaps_are_filled_as_asked(write: Write, text: str, fill: str, expected: list[float]) -> None:
    trace = load(write(text), fill=fill, interval_s=1.0)
    assert trace.cpu_cores[:4, 0].tolist() == expected
    assert trace.present.T.tolist() == [[True] * 4 + [False], [False] * 2 + [True] * 3]
    assert trace.cpu_cores[:, 1].tolist() == [0, 0, 7, 7, 7]
    assert f"Filled 2 missing samples (fill={fill}), 28.6 % of all." in trace.notes


@pytest.mark.parametrize(
    "text", ["container,time,cpu\nweb,0,1\nweb,1,1\nweb,3,1\n", "time,web\n0,1\n1,\n2,1\n"]
)
def test_the_error_for_a_gap_names_its_cure(write: Write, text: str) -> None:
    path = write(text)
    with pytest.raises(TraceError, match=r"--fill hold \(or zero, linear\) fills gaps"):
        load(path)
    assert load(path, fill="hold").present.all()


def test_a_gap_of_a_year_is_too_many_cells(write: Write) -> None:
    path = write("container,time,cpu\nweb,0,1\nweb,0.001,1\nweb,99999999,1\n")
    with pytest.raises(TraceError, match="are more than max_cells"):
        load(path, fill="hold")


def test_a_gap_of_memory_alone_is_filled(write: Write) -> None:
    trace = load(write("time,web,web.memory_bytes\n0,1,\n1,1,10\n2,1,\n3,1,30\n"), fill="linear")
    assert trace.memory_bytes[:, 0].tolist() == [10, 10, 20, 30]


def test_what_is_known_in_a_gap_of_the_cpu_is_kept(write: Write) -> None:
    text = "time,web,web.memory_bytes\n0,1,10\n1,,99\n2,1,30\n"
    trace = load(write(text), fill="hold")
    assert trace.memory_bytes[:, 0].tolist() == [10, 99, 30]
    assert "Filled 1 missing sample (fill=hold), 33.3 % of all." in trace.notes


def test_a_filled_cell_of_memory_is_counted(write: Write) -> None:
    text = "time,web,web.memory_bytes,db\n0,1,10,1\n1,1,,1\n2,1,30,1\n"
    trace = load(write(text), fill="linear")
    assert trace.memory_bytes.tolist() == [[10, 0], [20, 0], [30, 0]]
    assert "Filled 1 missing sample (fill=linear), 16.7 % of all." in trace.notes


def test_a_column_without_any_value_is_as_good_as_none(write: Write) -> None:
    trace = load(write("container,time,cpu,memory_mib,rx_bytes\nweb,0,1,,\nweb,1,1,, \n"))
    assert trace.rx_bytes is None
    assert trace.memory_bytes.tolist() == [[0], [0]]


def test_a_word_at_the_end_of_a_long_file_is_found_soon(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    number = table._number

    def counting(cell: str) -> float:
        looked.append(cell)
        return number(cell)

    monkeypatch.setattr(table, "_number", counting)
    path = write("time,web\n" + "".join(f"{i},1\n" for i in range(20_000)) + "20000,lots\n20001,none\n")
    with pytest.raises(TraceError, match="line 20002, column web: 'lots', expected a finite number"):
        load(path)
    assert len(looked) <= 4096
