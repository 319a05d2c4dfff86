"""`twinbed traces import prometheus`: what it writes, and what it leaves when it cannot."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.lab.cli_calls import Twinbed
from tests.lab.connect.made_up import CPU, START_S, answering, container, steady
from tests.lab.connect.servers import http_server
from traces.prometheus import kept

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


def test_a_history_becomes_two_files(twinbed: Twinbed, tmp_path: Path) -> None:
    out = tmp_path / "shop.parquet"
    with http_server(answering(SERIES)) as url:
        ended = twinbed(
            "traces", "import", "prometheus", url, "--selector", 'namespace="shop"', "--since", "10m",
            "--until", START_S + 600, "--step", "30s", "--out", out, "--format", "json",
        )  # fmt: skip
    assert ended.code == 0, ended.err
    (row,) = json.loads(ended.out)["rows"]
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


def test_an_interruption_leaves_nothing(twinbed: Twinbed, tmp_path: Path, monkeypatch) -> None:
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
        (("--since", "10s", "--until", "1700000055"), "--since: 10 s are no time from one step"),
        (("--until", "yesterday"), "--until yesterday: expected a time such as"),
        (("--selector", "namespace=shop"), "--selector: 'namespace=shop' is no matcher"),
        (("--token-env", "NO_SUCH_TOKEN"), "there is no such environment variable"),
        (("--token-file", "/no/such/file"), "/no/such/file: No such file or directory"),
        (("--ca-file", "/no/such/file"), "cannot"),
        (("--out", "shop.csv"), "a history is written as .parquet"),
        (("--out", "/no/such/folder/shop.parquet"), "there is no folder /no/such/folder"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(twinbed: Twinbed, tmp_path: Path, options, words: str) -> None:
    out = ("--out", tmp_path / "shop.parquet")
    scheme = "https" if options[0] == "--ca-file" else "http"
    ended = twinbed("traces", "import", "prometheus", f"{scheme}://127.0.0.1:1", *out, *options)
    assert (words if words != "cannot" else "/no/such/file") in ended.refused
    assert list(tmp_path.glob("*.parquet*")) == []


def test_a_token_on_the_command_line_is_no_option(twinbed: Twinbed, tmp_path: Path) -> None:
    def never(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        raise AssertionError

    with http_server(never) as url:
        ended = twinbed(
            "traces", "import", "prometheus", url, "--token", "abc", "--out", tmp_path / "a.parquet"
        )
    assert "No such option: --token" in ended.refused
