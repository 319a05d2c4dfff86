"""`twinbed traces` and `twinbed policies`."""

import csv
import io
import json
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest

from control.allocator import POLICIES
from lab.ask.policy import parse
from tests.lab.connect.made_up import CPU, START_S, answering, container, steady
from tests.lab.connect.servers import http_server
from traces import parquet
from traces.load import FORMATS, load, shipped
from traces.prometheus import kept


def test_formats_and_shipped_recordings_are_listed(twinbed):
    rows = twinbed("traces", "list", "--format", "json").rows
    assert [row["name"] for row in rows] == [*shipped(), *FORMATS]


def test_a_trace_is_inspected_with_usage_per_container(twinbed, csv_path):
    document = json.loads(twinbed("traces", "inspect", csv_path, "--format", "json").out)
    assert document["facts"]["shape"] == "2 containers, 30 intervals of 1 s (30 s)"
    web = document["rows"][0]
    # 6 of 30 intervals at 0.8 core, the others at 0.2.
    assert web["cpu_mean_cores"] == pytest.approx(0.32)
    assert (web["cpu_p50_cores"], web["cpu_max_cores"]) == (0.2, 0.8)
    assert web["memory_max_mib"] == 129.0


def test_a_container_without_memory_has_no_memory_figures(twinbed, tmp_path):
    path = tmp_path / "cpu.csv"
    path.write_text("time,web\n0,1\n1,2\n")
    (row,) = twinbed("traces", "inspect", path, "--format", "json").rows
    assert row["memory_mean_mib"] is None
    shown = twinbed("traces", "inspect", path).out
    assert "Mem" not in shown
    assert "has no memory column" in shown


def test_of_many_containers_people_see_the_busiest_and_machines_all(twinbed, tmp_path):
    path = tmp_path / "many.csv"
    names = [f"c{i}" for i in range(50)]
    path.write_text(
        f"time,{','.join(names)}\n" + "".join(f"{t},{','.join(map(str, range(50)))}\n" for t in (0, 1))
    )
    table = twinbed("traces", "inspect", path).out
    assert "c49" in table
    assert "c5 " not in table
    assert "The 30 of 50 containers" in table
    assert (
        len(list(csv.DictReader(io.StringIO(twinbed("traces", "inspect", path, "--format", "csv").out))))
        == 50
    )


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_a_converted_trace_reads_back_the_same(twinbed, csv_path, tmp_path, name):
    target = tmp_path / name
    assert twinbed("traces", "convert", csv_path, target).code == 0
    before, after = load(csv_path), load(target)
    assert after.containers == before.containers
    assert after.interval_s == before.interval_s
    np.testing.assert_array_equal(after.cpu_cores, before.cpu_cores)
    np.testing.assert_array_equal(after.memory_bytes, before.memory_bytes)


def test_containers_that_come_and_go_survive_a_csv(twinbed, tmp_path):
    path = tmp_path / "late.csv"
    path.write_text(
        'container,app,time_s,cpu_cores,rx_bytes\na,x,0,1,5\na,x,1,2,6\na,x,2,0.1,7\n"b,1",y,1,3,8\n'
    )
    twinbed("traces", "convert", path, tmp_path / "out.csv")
    before, after = load(path), load(tmp_path / "out.csv")
    assert (after.containers, after.apps) == (before.containers, before.apps)
    np.testing.assert_array_equal(after.present, before.present)
    np.testing.assert_array_equal(after.rx_bytes, before.rx_bytes)


def test_an_older_file_survives_a_conversion_that_fails(twinbed, tmp_path):
    broken, target = tmp_path / "broken.csv", tmp_path / "out.csv"
    broken.write_text("time,web\n0,nan\n")
    target.write_text("precious")
    assert twinbed("traces", "convert", broken, target).code == 2
    assert target.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_converted_history_keeps_its_workloads_and_settings(twinbed, tmp_path):
    own = 'namespace="shop",pod="web-1",container="app"'
    lines = [f"container_cpu_usage_seconds_total{{{own}}} {6 * k} {30_000 * k}" for k in range(9)]
    lines.append(f'kube_pod_container_resource_requests{{{own},resource="cpu",unit="core"}} 0.5 0')
    path, out = tmp_path / "shop.prom", tmp_path / "shop.parquet"
    path.write_text("\n".join(lines) + "\n")
    ended = twinbed("traces", "convert", path, out)
    assert "shop.in-force.parquet" in ended.out.replace("\n", "")
    history = kept.read(out)
    assert history.owners[0].workload == "web"
    assert history.in_force("cpu_request_cores").tolist() == [0.5]
    assert "owners and settings" in twinbed("traces", "convert", path, tmp_path / "shop.csv").out


def test_a_target_of_another_kind_is_refused(twinbed, csv_path, tmp_path):
    assert (
        "written as .parquet or .csv" in twinbed("traces", "convert", csv_path, tmp_path / "out.xlsx").refused
    )


def test_reader_options_reach_the_reader(twinbed, csv_path, tmp_path):
    twinbed("traces", "convert", csv_path, tmp_path / "o.parquet", "--trace-option", "app=shop")
    assert set(parquet.read(tmp_path / "o.parquet").apps) == {"shop"}
    assert "expected KEY=VALUE" in twinbed("traces", "inspect", csv_path, "--trace-option", "app").refused
    assert "'colour'" in twinbed("traces", "inspect", csv_path, "--trace-option", "colour=red").refused


def test_gaps_are_filled_by_an_option_that_the_error_names(twinbed, tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text("time,web\n0,1\n10,\n20,3\n")
    assert "--fill hold (or zero, linear) fills gaps" in twinbed("traces", "inspect", path).refused
    (row,) = twinbed("traces", "inspect", path, "--fill", "linear", "--format", "json").rows
    assert row["cpu_mean_cores"] == 2
    twice = twinbed("traces", "inspect", path, "--fill", "hold", "--trace-option", "fill=zero")
    assert "give one of them" in twice.refused


def test_every_parameter_of_every_policy_is_listed_with_unit_default_range_and_reason(twinbed):
    rows = twinbed("policies", "show", "--format", "json").rows
    assert {row["policy"] for row in rows} == set(POLICIES)
    rows = [row for row in rows if row["policy"] != "unlimited"]
    assert all(row["unit"] and row["why"] and row["range"] and row["default"] for row in rows)


def test_a_default_is_written_as_the_command_line_takes_it(twinbed):
    for row in twinbed("policies", "show", "--format", "json").rows:
        if row["parameter"] is not None:
            parse(f"{row['policy']}:{row['parameter']}={row['default']}")
    rows = twinbed("policies", "show", "tiresias", "--format", "json").rows
    assert {row["parameter"]: row["default"] for row in rows}["thresholds_gpu_s"] == "[3600.0]"


def test_a_policy_without_parameters_says_so(twinbed):
    assert "unlimited has no parameters" in twinbed("policies", "show", "unlimited").out
    assert "unlimited has no parameters" in twinbed("policies", "show").out


def test_one_policy_is_listed_alone_and_an_unknown_one_is_refused(twinbed):
    assert "vpa." not in twinbed("policies", "show", "escra").out
    assert (
        "no policy 'oracle'; there are autopilot, autothrottle, escra, firm, k8s-cpu, "
        "k8s-cpu-fast, krr, requests-only, static, unlimited, vpa"
        in twinbed("policies", "show", "oracle").refused
    )


SERIES = {
    CPU: [(container("web-7d4b9c6f5-x2k4z"), steady()), (container("db-0"), steady(0.25))],
    "container_memory_working_set_bytes": [(container("db-0"), lambda time: 2.0**28)],
    "kube_pod_container_resource_limits": [
        (container("db-0", resource="cpu"), lambda time: 2.0),
        (container("db-0", resource="memory"), lambda time: 2.0**30),
    ],
    "kube_pod_owner": [
        (container("web-7d4b9c6f5-x2k4z", owner_kind="ReplicaSet", owner_name="web-7d4b9c6f5"), steady())
    ],
    "kube_replicaset_owner": [
        (
            {
                "namespace": "shop",
                "replicaset": "web-7d4b9c6f5",
                "owner_kind": "Deployment",
                "owner_name": "web",
            },
            steady(),
        )
    ],
}


def test_a_history_becomes_two_files(twinbed, tmp_path):
    out = tmp_path / "shop.parquet"
    with http_server(answering(SERIES)) as url:
        ended = twinbed(
            "traces", "import", "prometheus", url, "--selector", 'namespace="shop"', "--since", "10m",
            "--until", START_S + 600, "--step", "30s", "--out", out, "--format", "json",
        )  # fmt: skip
    assert ended.code == 0, ended.err
    (row,) = ended.rows
    assert (row["containers"], row["workloads"], row["intervals"]) == (2, 2, 20)
    history = kept.read(out)
    assert history.trace.containers == ("shop/db-0/app", "shop/web-7d4b9c6f5-x2k4z/app")
    assert history.trace.cpu_cores[0].tolist() == pytest.approx([0.25, 0.5])
    assert [(own.kind, own.workload) for own in history.owners] == [
        ("StatefulSet", "db"),
        ("Deployment", "web"),
    ]
    assert history.in_force("cpu_limit_cores").tolist()[0] == 2
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [
        "shop.in-force.parquet",
        "shop.parquet",
    ]


def test_an_interruption_leaves_nothing(twinbed, tmp_path, monkeypatch):
    def interrupted(handler: object, *arguments: object) -> None:
        raise KeyboardInterrupt

    with http_server(answering(SERIES)) as url:
        monkeypatch.setattr("lab.connect.prometheus.MatrixReader.feed", interrupted)
        ended = twinbed("traces", "import", "prometheus", url, "--out", tmp_path / "shop.parquet")
    assert (ended.code, ended.err) == (130, "twinbed: interrupted\n")
    assert list(tmp_path.glob("*.parquet*")) + list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--since", "7"), "--since 7: expected a number and a unit"),
        (("--step", "fast"), "--step fast: expected a number and a unit"),
        (("--step", "2d"), "--step 172800 s: expected whole milliseconds"),
        (("--since", "10s", "--until", "1700000055"), "--since: 10 s; expected a time from one step"),
        (("--until", "yesterday"), "--until yesterday: expected a time such as"),
        (("--selector", "namespace=shop"), "--selector: 'namespace=shop' is no matcher"),
        (("--token-env", "NO_SUCH_TOKEN"), "there is no such environment variable"),
        (("--token-file", "/no/such/file"), "/no/such/file: No such file or directory"),
        (("--ca-file", "/no/such/file"), "cannot"),
        (("--out", "shop.csv"), "a history is written as .parquet"),
        (("--out", "/no/such/folder/shop.parquet"), "there is no folder /no/such/folder"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(twinbed, tmp_path, options, words):
    out = ("--out", tmp_path / "shop.parquet")
    scheme = "https" if options[0] == "--ca-file" else "http"
    ended = twinbed("traces", "import", "prometheus", f"{scheme}://127.0.0.1:1", *out, *options)
    assert (words if words != "cannot" else "/no/such/file") in ended.refused
    assert list(tmp_path.glob("*.parquet*")) == []


def test_a_token_on_the_command_line_is_no_option(twinbed, tmp_path):
    def never(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        raise AssertionError

    with http_server(never) as url:
        ended = twinbed(
            "traces", "import", "prometheus", url, "--token", "abc", "--out", tmp_path / "a.parquet"
        )
    assert "No such option: --token" in ended.refused


def test_a_converted_trace_has_no_settings_of_an_older_one_beside_it(twinbed, csv_path, tmp_path):
    older = kept.beside(tmp_path / "mine.parquet")
    older.write_bytes(b"settings of another trace")
    assert twinbed("traces", "convert", csv_path, tmp_path / "mine.parquet").code == 0
    assert not older.exists()
