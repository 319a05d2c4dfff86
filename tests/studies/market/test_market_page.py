import gzip
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from control.market import make
from control.market.ports import Terms
from studies.market import clouds, page, published, regions
from studies.market.page import Row, document, terms_of
from traces.readers.deadlines import Games
from twin.cloud.deadline import Windows, optimum_usd, play
from twinbed import TraceError


def write(folder: Path, name: str, head: str, *rows: str) -> None:
    text = "\n".join((head, *rows)) + "\n"
    if name.endswith(".gz"):
        with gzip.open(folder / name, "wt") as file:
            file.write(text)
    else:
        (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "scenarios.csv", "group,scenario,traces,windows", "g,both,a;b,0")
    head = (
        "variant,kind,set,windows,job_h,deadline_h,restart_overhead_h,gap_seconds,ondemand_usd_h,spot_usd_h,"
        "games,source"
    )
    write(
        tmp_path, "variants.csv", head,
        "one,single,single_2022,single,1,2,0.05,600,3.06,0.9731,z,x",
        "two,multi,multi_2023,multi,1,2,0.05,600,3.06,per tick,both,x",
    )  # fmt: skip
    write(
        tmp_path, "windows.csv", "set,window,start_tick,ticks,start_time,judged",
        "single_2022,0,3,12,,single", "single_2022,1,5,12,,",
        "multi_2023,0,0,12,,multi", "multi_2023,1,1,12,,multi",
    )  # fmt: skip
    costs = "variant,game,window,optimum_usd,greedy_usd,uniform_progress_usd"
    write(tmp_path, "reference.csv", costs, "one,z,0,1.0,2.0,3.0")
    write(
        tmp_path,
        "single_2022.csv.gz",
        "trace,tick,available",
        *(f"z,{tick},{tick % 2}" for tick in range(3, 20)),
    )
    rows = [f"{zone},{tick},1,{price}" for zone, price in (("a", 1.0), ("b", 0.5)) for tick in range(12)]
    write(tmp_path, "multi_2023.csv.gz", "trace,tick,available,spot_usd_h", *rows)
    return tmp_path


def test_windows_are_cut_from_the_traces_of_a_game(folder: Path) -> None:
    games = Games(folder)
    one, two = games.variants
    numbers, available, price = games.windows(one, "z", judged=True)
    assert numbers == [0]
    assert available.shape == (1, 12, 1)
    assert available[0, :3, 0].tolist() == [True, False, True]
    assert (price == 0.9731).all()
    assert games.windows(one, "z", judged=False)[0] == [1]
    numbers, available, price = games.windows(two, "both", judged=True)
    assert numbers == [0]  # the scenario has no other
    assert price[0, 0].tolist() == [1.0, 0.5]
    assert games.reference["one", "z", 0].tolist() == [1.0, 2.0, 3.0]


def test_a_tick_that_is_missing_is_named(folder: Path) -> None:
    write(folder, "single_2022.csv.gz", "trace,tick,available", "z,3,1", "z,5,1")
    with pytest.raises(TraceError, match="column tick: z leaves ticks out"):
        Games(folder)


def test_the_page_counts_and_judges_its_rows() -> None:
    names = (
        "single_high_loose_small",
        "single_low_tight_large",
        "zones_tight_small",
        "multi_high_a",
        "multi_low_a",
    )
    rows = [Row(name, 100.0, 120.0, 110.0, 102.0, 0, 0.001) for name in names]
    text = document(rows, rows)
    assert "our policy costs 1.020 times" in text
    assert "cheaper than Uniform Progress in 3 of 3 variants" in text
    assert "0 windows" in text
    assert "| single, 8 variants | 100.00 | 1.020 | 1.100 | 1.200 | ≤ 1.070 | reached | 1.020 |" in text
    worse = [Row(name, 100.0, 120.0, 110.0, 112.0, 0, 0.001) for name in names]
    assert "| zones, 4 variants | 100.00 | 1.120 | 1.100 | 1.200 | ≤ 1.040 | missed |" in document(
        worse, worse
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single_high_tight_small", "single_low_loose_large"])
def test_the_known_costs_come_out_to_a_cent(name: str, public_data: Callable[[str], Path]) -> None:
    games = Games(public_data("cant_be_late"))
    variant = next(variant for variant in games.variants if variant.name == name)
    terms = terms_of(variant)
    game = next(iter(variant.games))
    numbers, available, price = games.windows(variant, game, judged=True)
    windows = Windows(available, price)
    known = np.array([games.reference[name, game, number] for number in numbers])
    ours = [optimum_usd(terms, windows)]
    ours += [play(make(policy, terms), terms, windows).cost_usd for policy in page.REFERENCE]
    assert np.abs(np.array(ours).T - known).max() < 0.01
    planned = play(make(page.OURS, terms), terms, windows)
    assert (planned.finish_s <= terms.deadline_s).all()
    assert planned.cost_usd.mean() < ours[2].mean()


def test_the_part_about_regions_compares_with_the_source(folder: Path) -> None:
    games = Games(folder)
    found = regions.rows(games, terms_of, lambda *_: None)
    assert set(found["policy"]) >= {*regions.POLICIES, regions.ONE, regions.BEST}
    assert found["late"].sum() == 0
    text = "\n".join(regions.parts(found))
    # Zone b costs half of a, and a job of one hour with a restart holds it for 7 ticks of ten minutes.
    assert "| two | 0.58 | 1.000 | 1.000 |" in text
    assert "| UP(A) | 1.314 |" in text


def test_the_part_about_clouds_shows_savings_beside_those_of_the_source() -> None:
    models, made = (*clouds.MODELS, clouds.MODELLED), []
    steps = ["baseline", "gpu_type", "packed", "multi_cloud", clouds.FLAT, clouds.LEAST]
    steps += [f"dynamic {hours:g} h" for hours in clouds.SWEEP_H]
    for model, home, days, start in product(models, clouds.HOMES, clouds.DAYS, (0.0, 1.0)):
        usd = dict.fromkeys(steps, 50.0) | {"baseline": 100.0, "gpu_type": 80.0, "packed": 80.0}
        made += [(model, home, days, start, step, usd[step], 1) for step in steps]
    columns = ["model", "home", "days", "start", "step", "usd", "moves"]
    text = "\n".join(clouds.parts(pd.DataFrame(made, columns=columns)))
    assert "| A3C | 100.00 | 1.25 (1.32) | 1.25 (1.71) | 2.00 (3.10) | 2.00 (3.53) | 2.00–2.00 |" in text
    assert "saves at least as much as the one before it: yes. Moving daily saves 0.0%" in text


def test_the_figures_of_the_source_are_played_on_its_traces(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(published, "STARTS", 2)
    days, restart_h = 5 * 86_400, {"3 min": 0.05, "12 min": 0.2}
    name = "availability_{}node_aws_10-26-2022_us-west-2a_v100_1.csv"
    write(tmp_path, name.format(1), "t_s,available", "0,1", f"{days},1")
    # Three machines of four for a tenth of the time, none for a tenth.
    rows = [
        f"{share * days // 10},{machines}"
        for share, machines in ((0, 4), (3, 3), (4, 4), (8, 0), (9, 4), (10, 4))
    ]
    write(tmp_path, name.format(4), "t_s,available", *rows)
    text = "\n".join(published.parts(tmp_path, lambda: None))
    for policy, known in (("greedy", "30.8, 17.2"), ("optimum", "20.7, 27.4")):
        # Spot is always there: the job holds it for its work and one start, in whole ticks of ten minutes.
        cells = " | ".join(f"0.0, {-(-(48 + restart) // (1 / 6)) / 6:.1f}" for restart in restart_h.values())
        assert f"| {policy} | {known} | {cells} |" in text
    assert "| 84 h | 0.59 | 0.32 (0.32–0.32) |" in text
    assert "4node_aws_10-26-2022_us-west-2a_v100_1 90%" in text
    assert "| restart 3 min | +0% | +0% |" in text


def test_a_mixed_fleet_saves_what_its_spot_machines_cost_less(tmp_path: Path) -> None:
    path = tmp_path / "availability_4node_aws_date_zone_v100_1.csv"
    write(tmp_path, path.name, "t_s,available", "0,3", f"{5 * 86_400},3")
    terms = Terms(48 * 3600.0, 60 * 3600.0, 180.0, 600.0, published.ON_DEMAND_USD_H)
    # All or none is never there, so it holds on demand as long as the mix holds one such machine of four.
    saved = 3 * (published.ON_DEMAND_USD_H - published.SPOT_USD_H) / (4 * published.ON_DEMAND_USD_H)
    assert published.mixed(path, terms, 2)[:2] == pytest.approx([saved, saved])


def test_a_machine_that_is_never_lost_is_said_to_be_kept(tmp_path: Path) -> None:
    name = "preemption_1node_gcp_04-30-2023_us-central1-{}_c3-88.csv"
    for zone, last in (("a", "1"), ("b", "0")):
        write(tmp_path, name.format(zone), "t_s,available", "0,0", "30,1", f"80000,{last}", "90000,1")
    assert "kept throughout in 1 of 2 traces of 25 h" in published.bioinformatics(tmp_path)
    assert "without traces" in published.bioinformatics(tmp_path / "none")


def test_a_tick_of_a_trace_counts_when_all_machines_are_there_throughout(tmp_path: Path) -> None:
    path = tmp_path / "availability_2node_aws_date_zone_v100_1.csv"
    write(tmp_path, path.name, "t_s,available", "0,2", "900,1", "930,2", "1800,2")
    assert published.trace(path).tolist() == [True, False, True]
