"""Every public format on a made-up file of a few lines: units, selection, and what a bad cell gets."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from traces.load import load
from twinbed import TraceError


def gz(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


SOCKSHOP = """\
fault_service,fault,rep,phase,time,web_cpu,db_cpu,web_mem,db_mem,web_lod
web,cpu,1,normal,1000,50,10,7,8,1
web,cpu,1,normal,1001,60,20,9,10,1
web,cpu,1,anomalous,2000,100,20,9,10,1
web,mem,2,normal,3000,1,1,1,1,1
"""


def test_sock_shop_is_percent_of_a_core(tmp_path: Path) -> None:
    path = gz(tmp_path / "s.csv.gz", SOCKSHOP)
    trace = load(path, fault_service="web")
    assert trace.containers == ("db", "web")
    assert trace.cpu_cores.tolist() == [[0.1, 0.5], [0.2, 0.6]]
    assert trace.memory_bytes.tolist() == [[8, 7], [10, 9]]
    assert (trace.start_s, trace.interval_s) == (1000.0, 1.0)
    assert load(path, fault_service="web", phase="anomalous").start_s == 2000
    with pytest.raises(TraceError, match="no fault_service 'carts'; there are web"):
        load(path)
    with pytest.raises(TraceError, match="no rep 2; there are 1"):
        load(path, fault_service="web", rep=2)


def test_deathstarbench_leaves_out_nodes_and_holds_single_samples(tmp_path: Path) -> None:
    text = "pod,timestamp,cpu_usage,memory_working_set,service\n"
    text += "a-1,0,0.5,100,a\na-1,10,,110,a\na-1,20,0.7,120,a\na-1,30,,130,a\n"
    text += "b-1,0,1,1,b\nb-1,10,1,,b\nb-1,20,1,3,b\nnode2,0,9,,node2\n"
    trace = load(gz(tmp_path / "d.csv.gz", text))
    assert trace.containers == ("a-1", "b-1")
    assert trace.cpu_cores.tolist() == [[0.5, 1], [0.5, 1], [0.7, 1]]
    assert trace.memory_bytes.tolist() == [[100, 1], [110, 1], [120, 3]]
    assert trace.notes[1] == "1 node series are not containers and were not read."
    assert trace.notes[2].startswith("1 missing sample (17 %) repeats the one before")


NEZHA = "app,day,TimeStamp,PodName,CpuUsage(m),MemoryUsage(Mi)\n"


def test_nezha_is_millicores_and_mebibytes_of_the_first_day(tmp_path: Path) -> None:
    rows = "T,d2,600,p,9,9\nT,d1,0,p,500,2\nT,d1,61,p,250,3\nT,d1,119,p,250,3\nS,d1,0,q,1,1\n"
    path = gz(tmp_path / "n.csv.gz", NEZHA + rows)
    trace = load(path, app="T")
    assert trace.cpu_cores.tolist() == [[0.5], [0.25], [0.25]]
    assert trace.memory_bytes[0].tolist() == [2 * 2**20]
    assert trace.apps == ("T",)
    with pytest.raises(TraceError, match="no day of T 'd3'; there are d1, d2"):
        load(path, app="T", day="d3")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("T,d1,60,p,much,3\n", "line 3, column CpuUsage(m): 'much', expected a finite number"),
        ("T,d1,60,p,-5,3\n", "interval 2 (time 60 s), column cpu_cores, container 'p': -0.005"),
    ],
)
def test_a_bad_cell_of_a_public_file_is_named(tmp_path: Path, row: str, words: str) -> None:
    path = gz(tmp_path / "n.csv.gz", NEZHA + "T,d1,0,p,1,1\n" + row + "T,d1,120,p,,1\n")
    with pytest.raises(TraceError) as error:
        load(path, app="T")
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)


def test_google_jobs_are_percent_of_the_capacity_given(tmp_path: Path) -> None:
    text = "job,day,t_s,cpu_pct,mem_pct\n7,1,0,50,200\n7,1,300,25,10\n8,2,0,1,1\n"
    path = gz(tmp_path / "g.csv.gz", text)
    trace = load(path, capacity_cores=4, capacity_bytes="1000")
    assert trace.containers == ("job-7",)
    assert trace.cpu_cores.tolist() == [[2.0], [1.0]]
    assert trace.memory_bytes.tolist() == [[2000], [100]]
    with pytest.raises(TraceError, match="must be above zero"):
        load(path, capacity_cores=0)


def test_bitbrains_holds_a_value_over_the_duration_before_its_stamp(tmp_path: Path) -> None:
    text = "vm,timestamp,duration_ms,cpu_count,cpu_usage_mhz\n"
    text += "1,2013-08-12T00:05:00,300000,1,100\n1,2013-08-12T00:15:00,600000,1,50\n"
    path = gz(tmp_path / "b.csv.gz", text)
    trace = load(path, core_mhz=1000)
    assert trace.containers == ("vm-1",)
    assert trace.cpu_cores[:, 0].tolist() == [0.1, 0.05, 0.05]
    assert trace.start_s == pd.Timestamp("2013-08-12T00:00:00Z").timestamp()
    with pytest.raises(TraceError, match="core_mhz is 0"):
        load(path, core_mhz=0)
    broken = gz(tmp_path / "c.csv.gz", text + "1,noon,300000,1,100\n")
    with pytest.raises(TraceError, match="line 4, column timestamp: 'noon', expected an ISO 8601 time"):
        load(broken)


def test_the_single_bitbrains_vm_has_memory_and_network(tmp_path: Path) -> None:
    text = (
        "Timestamp [ms],CPU cores,CPU capacity provisioned [MHZ],CPU usage [MHZ],Memory usage [KB],"
        "Network received throughput [KB/s],Network transmitted throughput [KB/s]\n"
        "0,2,5000,1250,3,1,2\n301,2,5000,2500,4,0,0\n"
    )
    trace = load(gz(tmp_path / "v.csv.gz", text))
    assert trace.cpu_cores[:, 0].tolist() == [0.5, 1.0]
    assert trace.memory_bytes[:, 0].tolist() == [3072, 4096]
    assert trace.rx_bytes is not None
    assert trace.rx_bytes[:, 0].tolist() == [1024 * 300, 0]


@pytest.fixture
def surf(tmp_path: Path) -> Path:
    ids, mhz = [5, 5, 6, 6], [100.0, 200.0, 50.0, 0.0]
    fragments = pd.DataFrame({"id": ids, "duration_ms": [30000] * 4, "cpu_usage_mhz": mhz})
    fragments.to_parquet(tmp_path / "surf_fragments.parquet")
    tasks = "id,submission_time_ms,cpu_count,cpu_capacity_mhz\n5,1000,2,200\n6,44000,1,100\n"
    gz(tmp_path / "surf_tasks.csv.gz", tasks)
    return tmp_path


def test_surf_fragments_are_tiled_from_the_submission(surf: Path) -> None:
    trace = load(surf)
    assert trace.containers == ("job-5", "job-6")
    assert trace.shape == (2880, 2)
    assert trace.cpu_cores[:4].tolist() == [[1, 0], [2, 0.5], [0, 0], [0, 0]]
    assert trace.present[:4].tolist() == [[True, False], [True, True], [False, True], [False, False]]
    with pytest.raises(TraceError, match="no job runs on day 2"):
        load(surf, day=2)


def test_surf_pieces_that_do_not_fit_are_named(surf: Path) -> None:
    path = surf / "surf_fragments.parquet"
    frame = pd.read_parquet(path)
    frame.assign(duration_ms=[30000, 30000, 15000, 30000]).to_parquet(path)
    with pytest.raises(TraceError, match="row 3: a fragment of 15000 ms, expected 30000"):
        load(surf)
    frame.assign(id=[5, 5, 6, 9]).to_parquet(path)
    with pytest.raises(TraceError, match=r"row 4: job 9 is not in surf_tasks\.csv\.gz"):
        load(surf)


def test_surplus_fields_never_shift_the_columns(tmp_path: Path) -> None:
    path = gz(tmp_path / "n.csv.gz", NEZHA + "T,d1,0,p,1,1,9\nT,d1,60,p,1,1,9\n")
    with pytest.raises(TraceError, match="line 2 has more fields than the header"):
        load(path, app="T")
