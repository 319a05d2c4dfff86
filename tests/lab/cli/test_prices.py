from __future__ import annotations

import bz2
import functools
import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lab.cli.main import call
from lab.cloud.input.price_list import default_path, in_use
from tests.lab.connect.servers import LOOK_S
from tests.traces.made_sparecores import made


@pytest.fixture(autouse=True)
def _own_updates(tmp_path, monkeypatch):
    monkeypatch.setenv("TWINBED_PRICES", str(tmp_path / "kept" / "prices.parquet"))


@pytest.fixture
def served(tmp_path):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
    return listed


def test_the_list_is_filtered_and_the_cheapest_comes_first(capsys):
    arguments = ["--gpu", "a100", "--cloud", "aws", "--vcpus", "90:", "--memory", ":1200", "--format", "json"]
    assert call(["prices", "list", *arguments]) == 0
    listed = rows(capsys)
    assert listed
    assert {row["type"] for row in listed} <= {"p4d.24xlarge", "p4de.24xlarge"}
    costs = [float(str(row["price_usd_h"])) for row in listed]
    assert costs == sorted(costs)


def test_the_list_and_the_history_say_what_a_region_does_not_sell(capsys):
    where = ["--region", "asia-east2", "--market", "spot"]
    for verb in (["list", "--type", "a2-highgpu-1g"], ["history", "a2-highgpu-1g"]):
        assert call(["prices", *verb, *where]) == 0
        shown = capsys.readouterr().out
        assert "· Not sold: a2-highgpu-1g in asia-east2. Such a price may lack the GPU." in shown
        assert call(["prices", *verb, *where, "--format", "json"]) == 0
        assert {row["sold"] for row in rows(capsys)} == {False}
    assert call(["prices", "list", "--type", "a2-highgpu-1g", "--region", "us-central1"]) == 0
    assert "Not sold" not in capsys.readouterr().out


def test_a_table_says_how_many_rows_it_leaves_out(capsys):
    assert call(["prices", "list", "--region", "us-central1", "--top", "3"]) == 0
    assert "more rows; --top N or --format csv shows them" in capsys.readouterr().out


def test_the_history_of_a_type_is_dated(capsys):
    options = ["--region", "us-central1", "--market", "spot", "--format", "json"]
    assert call(["prices", "history", "g2-standard-4", *options]) == 0
    days = [str(row["as_of"]) for row in rows(capsys)]
    assert len(days) > 1
    assert days == sorted(days, reverse=True)
    assert call(["prices", "history", "g2-standard-4", *options[:-1], "csv"]) == 0
    assert "\ng2-standard-4,gcp,us-central1,spot," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["list", "--region", "us-centrall1"],
            "no price of region 'us-centrall1'; there are us-central1",
        ),
        (["list", "--vcpus", "many"], "--vcpus many: expected a number or FROM:TO"),
        (["list", "--vcpus", "16:8"], "--vcpus 16:8: the range ends below its begin; did you mean 8:16?"),
        (["list", "--vcpus", "7777"], "no price in the catalogue fits all these options"),
        (["history", "warp-9"], "no price of type 'warp-9'; there are"),
        (["update", "/nowhere/it.db"], "/nowhere/it.db: No such file"),
        (["update", "http://127.0.0.1:9/it.db"], "/it.db: Connection refused; try again, or give the file"),
        (["update", "http://127.0.0.1:9/a b.db"], "http://127.0.0.1:9/a b.db: "),
    ],
)
def test_what_cannot_be_is_one_line(arguments, message, capsys):
    assert call(["prices", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("way", ["file", "url", "bz2"])
def test_an_update_is_used_from_then_on(way, tmp_path, served, capsys):
    path = made(tmp_path / "it.db")
    (tmp_path / "it.db.bz2").write_bytes(bz2.compress(path.read_bytes()))
    source = {"file": str(path), "url": f"{served}/it.db", "bz2": f"{served}/it.db.bz2"}[way]
    before = in_use().price("g4dn.xlarge", "us-east-1")
    for _ in range(2):
        assert call(["prices", "update", source, "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert row == {"path": str(default_path()), "prices": 3}
    after = in_use().price("g4dn.xlarge", "us-east-1")
    assert (before.price_usd_h, after.price_usd_h) == (0.526, 0.5)
    assert after.as_of.isoformat() == "2026-08-01"
    assert in_use().price("g4dn.2xlarge", "us-east-1").source != after.source


@pytest.mark.parametrize(("name", "text"), [("mine.csv", None), ("mine.csv", "name\n"), ("mine", "name\n")])
def test_an_update_does_not_replace_a_users_csv(name, text, tmp_path, monkeypatch, capsys):
    kept = tmp_path / name
    monkeypatch.setenv("TWINBED_PRICES", str(kept))
    if text is not None:
        kept.write_text(text)
    assert call(["prices", "update", str(made(tmp_path / "it.db"))]) == 2
    assert f"{kept}: updates are Parquet; let $TWINBED_PRICES name a new file" in capsys.readouterr().err
    assert (kept.read_text() if kept.exists() else None) == text


def test_without_the_package_the_cure_is_named(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "sc_data", None)
    assert call(["prices", "update"]) == 2
    assert "pip install sparecores-data, or give its SQLite file" in capsys.readouterr().err


def test_a_gpu_that_no_price_has_is_refused_with_those_that_have_one(twinbed):
    ended = twinbed("prices", "list", "--gpu", "B9000")
    assert ended.code == 2
    assert "--gpu B9000: no price there; the catalogue has " in ended.err
    assert "NVIDIA T4" in ended.err


def test_the_history_names_its_type_in_every_format(capsys):
    verb = ["prices", "history", "gcp/n1-standard-4", "--top", "2"]
    assert call([*verb, "--format", "json"]) == 0
    assert {row["type"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"n1-standard-4"}
    assert call(verb) == 0
    assert capsys.readouterr().out.splitlines()[0] == "type  n1-standard-4"


def test_the_history_takes_a_type_with_its_provider(capsys):
    assert call(["prices", "history", "gcp/n1-standard-4", "--format", "json"]) == 0
    named = rows(capsys)
    assert {row["cloud"] for row in named} == {"gcp"}
    assert call(["prices", "history", "n1-standard-4", "--format", "json"]) == 0
    assert [row for row in rows(capsys) if row["cloud"] == "gcp"] == named
