"""`twinbed advise`: from a trace or a server to a table, a file, patches and a page."""

import json

import numpy as np
import pytest

from lab.containers.advise import model
from tests.lab.cli.test_cli_traces import SERIES
from tests.lab.connect.made_up import START_S, answering
from tests.lab.connect.servers import http_server
from tests.lab.containers.advise.histories import MIB, history, trace
from traces.prometheus import kept


def imported(folder, minutes):
    """An imported history of a Deployment with two replicas, far too large."""
    path = folder / "shop.parquet"
    random = np.random.default_rng(0)
    own = trace(0.2 * random.lognormal(0, 0.3, (2, minutes)), np.full((2, minutes), 100.0 * MIB))
    facts = {name: [2.0, 2.0] for name in ("cpu_request_cores", "cpu_limit_cores")}
    facts |= {name: [1024.0 * MIB] * 2 for name in ("memory_request_bytes", "memory_limit_bytes")}
    kept.write(history(own, **facts), path)
    return path


@pytest.fixture
def shop(tmp_path):
    """More than a day: advice on less is never applied without care."""
    return imported(tmp_path, 2000)


def test_an_imported_history_becomes_an_advice_patches_and_a_page(twinbed, shop, tmp_path):
    out, page, folder = tmp_path / "advice.json", tmp_path / "advice.html", tmp_path / "patches"
    ended = twinbed(
        "advise",
        shop,
        "--out",
        out,
        "--html",
        page,
        "--as",
        "kubernetes",
        "--write",
        folder,
        "--format",
        "json",
    )
    assert ended.code == 0, ended.err
    advice = model.read(out)
    assert json.loads(ended.out) == json.loads(out.read_text())
    (row,) = advice.rows
    assert (row.name, row.verdict, row.replicas) == ("shop/web/app", "apply", 2)
    assert row.before is not None
    assert "kind: Deployment" in (folder / "shop-deployment-web.yaml").read_text()
    assert page.read_text().startswith("<!doctype html>")


def test_the_table_has_figures_before_and_after(twinbed, shop):
    ended = twinbed("advise", shop, "--seeds", "1", "--price", "1,1,EUR", "--risk", "0.01")
    assert ended.code == 0, ended.err
    assert "Risk         1 % of periods throttled" in ended.out
    assert "EUR" in ended.out
    assert "→" in ended.out


def test_hosts_that_containers_share_are_rehearsed_and_said(twinbed, tmp_path):
    shop, out = imported(tmp_path, 200), tmp_path / "shop.json"
    hosts = ("--hosts", "1", "--host-cores", "0.3")
    ended = twinbed("advise", shop, "--seeds", "1", "--policy", "krr", *hosts, "--out", out)
    assert ended.code == 0, ended.err
    assert "1 of 0.3 cores" in ended.out
    made = model.read(out).made
    assert (made.hosts, made.host_cores) == (1, 0.3)
    assert "are placed in turn on 1 host of" in ended.out
    assert "a scheduler would not place all of them" in ended.out


def test_a_form_goes_to_standard_output_alone(twinbed, shop):
    ended = twinbed("advise", shop, "--as", "vpa", "--policy", "krr")
    assert ended.out.startswith("---\napiVersion: autoscaling.k8s.io/v1\n")


def test_a_server_is_read_as_by_traces_import(twinbed):
    with http_server(answering(SERIES)) as url:
        ended = twinbed(
            "advise", "--prometheus", url, "--selector", 'namespace="shop"', "--since", "10m",
            "--until", START_S + 600, "--format", "json",
        )  # fmt: skip
    assert ended.code == 0, ended.err
    rows = {row["name"]: row for row in ended.rows}
    assert set(rows) == {"shop/db/app", "shop/web/app"}
    assert rows["shop/db/app"]["current"]["cpu_limit_cores"] == 2
    assert rows["shop/web/app"]["verdict"] == "leave"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give traces, or the address of a server"),
        (("bursty_service", "--prometheus", "http://localhost:1"), "give traces, or the address"),
        (
            ("bursty_service", "--since", "2h"),
            "the other options of a server are for --prometheus",
        ),
        (("--prometheus", "http://localhost:1", "--fill", "hold"), "--fill are for traces"),
        (("bursty_service", "--risk", "5x"), "--risk 5x: expected a share"),
        (("bursty_service", "--risk", "nan%"), "--risk nan%: expected a share"),
        (("bursty_service", "--risk", "100%"), "--risk 100%: expected a share"),
        (("bursty_service", "--policy", "escra"), "no candidate 'escra'; there are requests-only"),
        (("bursty_service", "--price", "1"), "--price 1: expected CPU,MEMORY"),
        (("bursty_service", "--price", "a,b"), "expected CPU,MEMORY[,CURRENCY]"),
        (("bursty_service", "--price", "nan,1"), "expected CPU,MEMORY[,CURRENCY]"),
        (("bursty_service", "--hosts", "2"), "--hosts and --host-cores: give both"),
        (("bursty_service", "--host-cores", "2"), "--hosts and --host-cores: give both"),
        (("bursty_service", "--hosts", "0", "--host-cores", "2"), "--hosts 0 --host-cores 2: "),
        (("bursty_service", "--hosts", "1", "--host-cores", "nan"), "a number of cores above 0"),
        (("bursty_service", "--write", "x"), "--write: only with --as"),
        (("bursty_service", "--out", "no/such/advice.json"), "there is no folder no/such"),
        (("bursty_service", "--as", "helm"), "no row is of a Kubernetes workload"),
        (("no-such-trace",), "no such file or folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(twinbed, options, words):
    assert words in twinbed("advise", *options).refused


def test_an_empty_and_a_damaged_trace_are_one_line(twinbed, tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_text("container,time_s,cpu_cores\n")
    assert str(empty) in twinbed("advise", empty).refused
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(b"PAR1" + bytes(100))
    assert str(cut) in twinbed("advise", cut).refused
