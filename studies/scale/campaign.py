"""A sweep on workers of two namespaces with its store on S3, while workers, a link and the scheduler fail.

For: `python -m studies.scale.campaign`, which page.py starts inside the hub's namespace. It prints its result
as one JSON object. Not for: making the namespaces (places.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.runs.stores import store_at
from studies.scale.places import Places, restore, silence
from twinbed import BackendError, TwinbedError

SCENARIO = Path(__file__).with_name("small.yaml")
BUCKET, STORE = "tb-runs", "s3://tb-runs/sweep"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "twinbed",
    "AWS_SECRET_ACCESS_KEY": "twinbed",
    "AWS_DEFAULT_REGION": "us-east-1",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "15s",
}
_READY_S = 60.0
_SILENT = 1.5
"""Length of the silence, in times after which the scheduler gives a worker up."""
_ENDS_S = 1800.0
"""Time in which a sweep must end, s: a campaign of thousands of runs takes minutes."""
_PORT, _S3_PORT = 8786, 5000


class Hosts:
    """The processes of a campaign, by their own process ids."""

    def __init__(self, places: Places, log: Path) -> None:
        self._places, self._log = places, log
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, at: str = "") -> None:
        """Start a process, here or in another namespace."""
        where = ["ip", "netns", "exec", at] if at else []
        with (self._log / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen([*where, *command], stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """End a process with SIGKILL."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def scheduler(self) -> None:
        """Start the scheduler, in place of an earlier one."""
        self.kill("scheduler")
        self.start("scheduler", *_dask("scheduler", "--port", str(_PORT), "--no-dashboard", "--no-show"))

    def worker(self, number: int) -> None:
        """Start a worker, in place of an earlier one."""
        self.kill(f"worker{number}")
        address = f"tcp://{self._places.hub_address(number)}:{_PORT}"
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", f"10.213.{number}.2"]
        options += ["--local-directory", str(self._log / f"scratch{number}")]
        at = self._places.workers[number]
        self.start(f"worker{number}", *_dask("worker", address, *options), at=at)

    def stop(self) -> None:
        """End all processes."""
        for name in list(self._processes):
            self.kill(name)


def campaign(places: Places, seeds: range, given_up_s: float, folder: Path) -> dict[str, Any]:
    """Return the result of a sweep of these seeds through every fault once or twice.

    given_up_s: time after which the scheduler gives a silent worker up, s. Raises BackendError if something
    does not start, and if the sweep does not end.
    """
    # Both workers and the client reach the storage at one address of the hub.
    os.environ.update(_ENVIRONMENT, AWS_ENDPOINT_URL=f"http://{places.hub_address(0)}:{_S3_PORT}")
    os.environ["DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"] = f"{given_up_s}s"
    hosts = Hosts(places, folder)
    try:
        hosts.start("s3", sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(_S3_PORT))
        _until(_bucket, "the S3 server")
        hosts.scheduler()
        for number in range(len(places.workers)):
            hosts.worker(number)
        began_s = time.monotonic()
        happened = _through_faults(places, hosts, seeds, _SILENT * given_up_s, folder)
        took_s = time.monotonic() - began_s
        return {**_compared(seeds, folder), "faults": happened, "seconds": round(took_s, 1)}
    finally:
        hosts.stop()


def _through_faults(places: Places, hosts: Hosts, seeds: range, silent_s: float, folder: Path) -> list[str]:
    """Run the sweep through the faults, and return the list of faults with their times."""
    happened: list[str] = []
    runs, sweep = len(seeds), _sweep(seeds, folder)
    store = store_at(STORE)

    def after(share: float, text: str, fault: Callable[[], object]) -> None:
        while (there := len(store.names())) < share * runs:
            if sweep.poll() is not None:
                raise BackendError(f"the sweep ended before {text}: {_tail(folder)}")
            # A listing takes the S3 server's time from the sweep, the longer the more runs there are.
            time.sleep(max(0.2, runs / 2_000))
        fault()
        happened.append(f"{text} with {there} of {runs} runs stored")

    def again(number: int) -> None:
        hosts.kill(f"worker{number}")
        time.sleep(1.0)
        hosts.worker(number)

    def silent() -> None:
        silence(places.workers[0])
        time.sleep(silent_s)
        restore(places.workers[0])
        # After the scheduler has given the worker up, the worker ends itself or stays away.
        hosts.worker(0)

    try:
        after(0.10, "worker 0 killed with -9", lambda: again(0))
        after(0.25, "worker 1 killed with -9", lambda: again(1))
        after(0.35, "the scheduler killed with -9", lambda: hosts.kill("scheduler"))
        code = sweep.wait(timeout=_ENDS_S)
        happened.append(f"the sweep ended with exit code {code}: {_tail(folder)}")
        hosts.scheduler()
        for number in range(len(places.workers)):
            hosts.worker(number)
        sweep = _sweep(seeds, folder, "--resume")
        after(0.45, f"the link of worker 0 silent for {silent_s:g} s", silent)
        code = sweep.wait(timeout=_ENDS_S)
        if code:
            raise BackendError(f"the resumed sweep ended with exit code {code}: {_tail(folder)}")
        happened.append("the same command with --resume ended with exit code 0")
    finally:
        if sweep.poll() is None:
            sweep.kill()
            sweep.wait()
    return happened


def _compared(seeds: range, folder: Path) -> dict[str, Any]:
    """Make the same runs here, and compare the contents of the two stores."""
    own = folder / "local"
    began_s = time.monotonic()
    _checked(_command(seeds, str(own), "--jobs", "1"))
    local_s = time.monotonic() - began_s
    far, here = store_at(STORE), store_at(own)
    names = far.names()
    same = 0
    for run in far.open_all(names):
        twin = here.open_all([run.id])[0] if here.has(run.id) else None
        if twin is not None and run.manifest["tables"] == twin.manifest["tables"] and not run.verify():
            same += 1
    rows = _rows(folder)
    return {
        "runs": len(seeds),
        "there": len(names),
        "missing": len(set(here.names()) - set(names)),
        "unasked": len(set(names) - set(here.names())),
        "rows": len(rows),
        "rows twice": len(rows) - len(set(rows)),
        "identical": same,
        "local seconds, one process": round(local_s, 1),
    }


def _rows(folder: Path) -> list[str]:
    import pandas as pd

    return [str(run) for run in pd.read_parquet(folder / "all.parquet")["run"]]


def _command(seeds: range, store: str, *options: str) -> list[str]:
    head = [sys.executable, "-m", "lab.cli.main", "sweep", str(SCENARIO), "--seeds"]
    head.append(f"{seeds.start}:{seeds.stop}")
    return [*head, "--store", store, "--no-progress", *options]


def _sweep(seeds: range, folder: Path, *options: str) -> subprocess.Popen[bytes]:
    # A worker that is still starting counts too, so the sweep waits for both.
    _until(_workers, "the workers")
    command = _command(seeds, STORE, "--engine", f"dask://127.0.0.1:{_PORT}")
    with (folder / "sweep.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--out", str(folder / "all.parquet"), *options], stdout=log, stderr=log
        )


def _checked(command: Sequence[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BackendError(f"the local sweep failed: {ended.stderr.strip()[-300:]}")


def _tail(folder: Path) -> str:
    lines = (folder / "sweep.log").read_text(errors="replace").strip().splitlines()
    return lines[-1][-200:] if lines else "no word"


def _bucket() -> bool:
    import boto3  # type: ignore[import-untyped]

    boto3.client("s3").create_bucket(Bucket=BUCKET)
    return True


def _workers() -> bool:
    import distributed

    client: Any = distributed.Client  # untyped
    with client(f"tcp://127.0.0.1:{_PORT}", timeout=5, set_as_default=False) as opened:
        return len(opened.nthreads()) >= 2


def _until(ready: Callable[[], bool], what: str) -> None:
    """Wait until something is ready. Raises BackendError after _READY_S."""
    end_s = time.monotonic() + _READY_S
    problem = "not yet"
    while time.monotonic() < end_s:
        try:
            if ready():
                return
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        time.sleep(0.3)
    raise BackendError(f"{what} did not start: {' '.join(problem.split())[:200]}")


def _dask(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dask", *arguments]


def main() -> int:
    """Run a campaign. Arguments: hub, workers with commas, first seed, end of the seeds, given_up_s."""
    hub, workers, first, end, given_up_s = sys.argv[1:6]
    try:
        with tempfile.TemporaryDirectory(prefix="twinbed-scale-") as folder:
            where, seeds = Places(hub, tuple(workers.split(","))), range(int(first), int(end))
            found = campaign(where, seeds, float(given_up_s), Path(folder))
    except (TwinbedError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
