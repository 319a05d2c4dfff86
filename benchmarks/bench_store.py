"""Times of listing and querying a store of 100,000 runs: in a folder, and on moto's S3 server in this
process.

All runs share the same table files; each has a manifest of its own. The baseline is reading every manifest
again, on a store of 2,000 runs, scaled to the same number.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from benchmarks.figure import figure, median_s
from lab.ask.scenario import build
from lab.runs.runner import run_scenario
from lab.runs.store import MANIFEST, Run, RunStore
from lab.runs.stores import store_at

RUNS, FEW, REPEATS = 100_000, 2_000, 3
_LINKS = 30_000
"""Largest number of runs that share a file: file systems limit the links of a file."""
_ASKED = "SELECT policy, count(*) AS runs, avg(mean_reserved_cores) AS cores FROM runs GROUP BY policy"
_KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


def figures() -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="twinbed-bench-") as text:
        folder = Path(text)
        (first,) = run_scenario(build(_small()), RunStore(folder / "first"), jobs=1)
        for count in (FEW, RUNS):
            _fill(first, folder / str(count), count)
        # The index leaves out files that have just changed: a later change may leave the same time stamp.
        time.sleep(3)
        yield from _both("folder", RunStore(folder / str(FEW)), RunStore(folder / str(RUNS)))
        yield from _on_s3(first)


def _on_s3(first: Run) -> Iterator[dict[str, object]]:
    import boto3  # type: ignore[import-untyped]
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        with mock.patch.dict(os.environ, {**_KEYS, "AWS_ENDPOINT_URL": url}):
            boto3.client("s3").create_bucket(Bucket="runs")
            held = s3_backends["123456789012"]["aws"]
            for count in (FEW, RUNS):
                for run_id, manifest in _manifests(first, count):
                    held.put_object("runs", f"{count}/{run_id}/{MANIFEST}", manifest)
            yield from _both("s3", store_at(f"s3://runs/{FEW}"), store_at(f"s3://runs/{RUNS}"))
    finally:
        server.stop()


def _both(where: str, few: RunStore, many: RunStore) -> Iterator[dict[str, object]]:
    began_s = time.perf_counter()
    few.list()
    each_s = (time.perf_counter() - began_s) / FEW
    began_s = time.perf_counter()
    assert len(many.list()) == RUNS
    first_s = time.perf_counter() - began_s
    for name, ask in (("list", many.list), ("query", lambda: many.query(_ASKED))):
        seconds, _ = median_s(ask, REPEATS)
        yield figure(
            f"store_{where}_{name}_{RUNS}_runs", seconds, "s",
            baseline="every manifest read again", baseline_value=each_s * RUNS,
            ratio=each_s * RUNS / seconds, target="≤ 2 s", first_time_s=round(first_s, 1),
        )  # fmt: skip


def _fill(first: Run, root: Path, count: int) -> None:
    for number, (run_id, manifest) in enumerate(_manifests(first, count)):
        folder = root / run_id
        folder.mkdir(parents=True)
        if number % _LINKS == 0:
            source = shutil.copytree(first.path, root.with_name(f"{root.name}-{number}"))
        for name in first.tables:
            (folder / f"{name}.parquet").hardlink_to(source / f"{name}.parquet")
        (folder / MANIFEST).write_bytes(manifest)


def _manifests(first: Run, count: int) -> Iterator[tuple[str, bytes]]:
    for seed in range(count):
        run_id = f"small-escra-{seed:010x}"
        yield run_id, json.dumps({**first.manifest, "id": run_id, "seed": seed}).encode()


def _small() -> dict[str, object]:
    step = {"duration_s": 1, "cpu_cores": 1}
    container = {"name": "steps", "threads": 1, "memory_bytes": 1 << 26, "steps": [step]}
    return {"name": "small", "workload": {"containers": [container]}, "policies": ["escra"], "host_cores": 4}
