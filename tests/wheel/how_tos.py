"""The needs of the how-tos' ```sh blocks besides twinbed: the files that a reader has, and a Prometheus.

For: making these files in a folder, by page. Not for: running the blocks (test_wheel.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.lab.cluster.test_cluster_jobs import TRACE as FAULTS
from tests.lab.connect.made_up import CPU, Points, answering, container
from tests.lab.connect.servers import Answer
from tests.lab.fabric.test_traced import PRINTED
from tests.pages import HOW_TOS, blocks
from tests.traces import made_sparecores, sample_chakra, test_kineto

NOT_HERE = {
    "apply-an-advice": "changes containers of Docker, Podman, systemd or Kubernetes",
    "attach-a-container": "needs root, and containers of other programs",
    "calibrate-and-validate": "measures a real machine, as root and for minutes",
    "fail-over-fast": "needs root, FRR and its own network namespaces",
    "keep-tunnel-rules": "needs root and a real fabric",
    "kernel-hooks": "needs root, or boots a VM",
    "raise-a-fabric": "needs root and FRR",
    "record-a-workload": "needs root and cgroups",
    "run-on-several-hosts": "needs root, on several machines",
    "soft-roce": "needs root and VMs",
    "watch-with-prometheus": "needs root, and a Prometheus that scrapes",
}
"""How-tos without a block that every user can run, and why."""

SERVER = "http://localhost:9090"
"""The address of Prometheus on the pages."""

_SAVED_S, _SCRAPED_S, _PERIOD_S = (1_714_550_000, 1_714_553_600), 7200.0, 600
"""Time that a page saves to a file; how long the server has scraped until now; time between two bursts."""

_SPOT = "t_s,available\n0,1\n14400,0\n43200,2\n108000,0\n129600,1\n216000,0\n244800,1\n432000,1\n"
_JOBS = "name,arrival_h,work_h,deadline_h\nfirst,0,10,20\nsecond,3,30,\n"


def prometheus() -> Answer:
    """Return the answers of a server that has scraped two containers for two hours, and once before."""
    now_s = time.time()

    def scraped(value: Callable[[float], float]) -> Points:
        def at(time_s: float) -> float | None:
            seen = _SAVED_S[0] - 60 <= time_s <= _SAVED_S[1] or now_s - _SCRAPED_S <= time_s <= now_s
            return value(time_s) if seen else None

        return at

    def used(cores: float) -> Points:
        """Bursts of a minute at the beginning of each period."""

        def seconds(time_s: float) -> float:
            whole, rest = divmod(time_s, _PERIOD_S)
            return cores * (0.7 * time_s + 0.3 * (60 * whole + min(rest, 60)))

        return scraped(seconds)

    pods = {"web-7d4b9c6f5-x2k4z": 0.8, "db-0": 0.4}
    series = {
        CPU: [(container(pod), used(cores)) for pod, cores in pods.items()],
        f"timestamp({CPU})": [(container(pod), scraped(lambda time_s: time_s)) for pod in pods],
        "container_memory_working_set_bytes": [
            (container(pod), scraped(lambda time_s: 2**27 + 1000 * (time_s % 3600))) for pod in pods
        ],
    }
    return answering(series)


def _texts(page: str, language: str) -> list[str]:
    return [block.text for block in blocks(HOW_TOS / f"{page}.md") if block.language == language]


def _cluster(folder: Path) -> None:
    (folder / "fault_events.csv").write_text(FAULTS)
    (folder / "march.txt").write_text(
        "JobID|Submit|Start|End|ElapsedRaw|Partition|ReqTRES\n"
        "7|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T11:05:00|3600|research|cpu=8,gres/gpu=4\n"
    )


def _fabric(folder: Path) -> None:
    (folder / "my_ring.yaml").write_text(_texts("ask-about-a-fabric", "yaml")[0])
    test_kineto.written(folder / "rank0.json.gz", test_kineto.GPU)
    (folder / "all_reduce.txt").write_text(PRINTED)
    sample_chakra.written(folder / "rank0.et", sample_chakra.step())


def _trace(folder: Path) -> None:
    (folder / "my-trace.csv").write_text(_texts("bring-your-own-trace", "csv")[0])


def _configuration(folder: Path) -> None:
    (folder / "job.yaml").write_text(_texts("choose-a-configuration", "yaml")[0])
    (folder / "runs.csv").write_text(_texts("choose-a-configuration", "csv")[0])
    made_sparecores.made(folder / "sc-data-all.db")


def _model(folder: Path) -> None:
    (folder / "model.yaml").write_text(_texts("predict-a-job", "yaml")[0])


def _application(folder: Path) -> None:
    application, question = _texts("describe-your-application", "yaml")
    (folder / "small_shop.yaml").write_text(application)
    (folder / "my_question.yaml").write_text(question)


def _spot(folder: Path) -> None:
    for name in ("availability", "zone-a", "zone-b"):
        (folder / f"{name}.csv").write_text(_SPOT)
    (folder / "jobs.csv").write_text(_JOBS)


def _policy(folder: Path) -> None:
    (folder / "follow.py").write_text(_texts("write-your-own-policy", "python")[0])
    (folder / "mine.yaml").write_text(_texts("write-your-own-policy", "yaml")[0])


FILES: dict[str, Callable[[Path], None]] = {
    "ask-about-a-cluster": _cluster,
    "ask-about-a-fabric": _fabric,
    "bring-your-own-trace": _trace,
    "choose-a-configuration": _configuration,
    "describe-your-application": _application,
    "meet-a-deadline-on-spot": _spot,
    "predict-a-job": _model,
    "write-your-own-policy": _policy,
}
"""What writes the files that a page's blocks read, into a folder."""
