from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.traces.made_sparecores import PRICES, made
from traces.catalogue import sparecores, table
from twinbed import TraceError


@pytest.mark.parametrize("word", ["accelerator", "gpu"])
def test_prices_are_those_of_linux_per_hour_in_the_cheapest_zone(tmp_path: Path, word: str) -> None:
    rows = table.listings(sparecores.read(made(tmp_path / "it.db", word=word)))
    assert {(row.name, row.region, row.market): row.price_usd_h for row in rows} == {
        ("g4dn.xlarge", "us-east-1", "on-demand"): 0.5,
        ("g4dn.xlarge", "us-east-1", "spot"): 0.2,
        ("n1-standard-4", "us-central1", "on-demand"): 0.19,
    }
    own = next(row for row in rows if row.market == "spot")
    assert (own.gpus, own.gpu_model, own.network_bps, own.memory_gib) == (1, "NVIDIA T4", 25e9, 16)
    assert (own.as_of, own.source) == (date(2026, 8, 1), sparecores.SOURCE)


def test_what_a_row_cannot_have_is_named_by_file_and_row(tmp_path: Path) -> None:
    wrong = (*PRICES[0][:7], "dear", *PRICES[0][8:])
    path = made(tmp_path / "it.db", [PRICES[4], wrong])
    with pytest.raises(TraceError, match=r"it\.db: server_price row 2: price_per_h 'dear'"):
        sparecores.read(path)
    with pytest.raises(TraceError, match=r"it2\.db: server_price row 1: currency 'EUR'"):
        sparecores.read(made(tmp_path / "it2.db", [(*PRICES[0][:8], "EUR", "ACTIVE")]))


def test_the_row_that_is_named_is_the_cheapest_zone_s(tmp_path: Path) -> None:
    path = made(tmp_path / "it.db", [PRICES[1], (*PRICES[2][:8], "EUR", "ACTIVE")])
    with pytest.raises(TraceError, match=r"it\.db: server_price row 2: currency 'EUR'"):
        sparecores.read(path)


def test_another_file_and_an_empty_database_are_refused(tmp_path: Path) -> None:
    (tmp_path / "it.csv").write_text("name,price\n")
    with pytest.raises(TraceError, match="not an SQLite file"):
        sparecores.read(tmp_path / "it.csv")
    with pytest.raises(TraceError, match="no price of AWS"):
        sparecores.read(made(tmp_path / "none.db", []))
    (tmp_path / "cut.db").write_bytes(made(tmp_path / "whole.db").read_bytes()[:4096])
    with pytest.raises(TraceError, match="not Spare Cores' database"):
        sparecores.read(tmp_path / "cut.db")
