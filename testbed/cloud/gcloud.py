"""Instances of Google Cloud through its command line, `gcloud`: the thin adapter for one real cloud.

For: a search whose trials cost real money (`--backend gcloud --real --cap USD`). Not for: images, networks
and accounts, which the user's instance template states, nor for parameter servers. The template's image has
python3 with the job's packages, and the job's folder at the same path as here. Compute Engine deletes every
instance by itself when its lease is over (`--max-run-duration` with the termination action DELETE), even if
this machine no longer exists. The job's steps come back through the first worker's serial port. Not tried on
the real cloud: the tests check the adapter against answers written after Google's documentation of `gcloud
compute instances`.
"""

from __future__ import annotations

import base64
import json
import math
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from control.provisioner import Held, Order, Reading, State, cannot_run
from testbed.cloud.emulated import WARM_UP_STEPS
from testbed.cloud.steps import HOOK
from twinbed import BackendError, ScenarioError

POLL_S = 5.0
"""Time between two reads of the serial port, s."""
LONGEST_CALL_S = 600.0
"""Longest time of one `gcloud` command, s."""
OWNER, TOKEN = "twinbed-owner", "twinbed-token"
"""Names of the labels that every instance bears."""
_STATES = {"PROVISIONING": State.CREATING, "STAGING": State.CREATING, "RUNNING": State.RUNNING}
"""Compute Engine's state → our state. Others are FAILED: stopped instances have billed disks."""
_STEPS, _END = "twinbed-steps", "twinbed-end"
LAST_STEPS = 200
"""Number of steps whose ends an instance reports each time, and the most that can be measured."""
_JOB = """#!/bin/sh
# Runs the job as one rank, and reports its steps on the console. Written by twinbed.
export RANK={rank} LOCAL_RANK=0 WORLD_SIZE={workers} MASTER_ADDR={master} MASTER_PORT=29500
export TWINBED_STEPS=$(mktemp -d) PYTHONPATH=$(mktemp -d)
echo {hook} | base64 -d >"$PYTHONPATH/sitecustomize.py"
{folder}{command} >"$TWINBED_STEPS/log" 2>&1 &
job=$!
tell() {{
    steps=$(tail -c {bytes} "$TWINBED_STEPS/0.steps" 2>/dev/null | od -An -v -t d8 -w8 | tr -s ' \\n' ' ')
    size=$(wc -c 2>/dev/null <"$TWINBED_STEPS/0.steps" || echo 0)
    echo "{steps} $((size / 8)) $steps" >{console}
}}
while kill -0 $job 2>/dev/null; do sleep {poll}; tell; done
wait $job
code=$?
echo "{end} $code $(tail -n 1 "$TWINBED_STEPS/log")" >{console}
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a command: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Call = Callable[[Sequence[str]], Answer]


def _call(arguments: Sequence[str]) -> Answer:
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_CALL_S,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise BackendError("gcloud: not installed; see https://cloud.google.com/sdk/docs/install") from None
    except subprocess.TimeoutExpired:
        raise BackendError(f"gcloud: no answer within {LONGEST_CALL_S:g} s; try again") from None
    return Answer(done.returncode, done.stdout, done.stderr)


class Gcloud:
    """A provisioner on Compute Engine.

    zone: zone in which instances are made.
    template: instance template from which they are made.
    real: whether the user allowed real spending.
    cap_usd: the most that a search may spend, US$.
    call: function that runs a command.
    wait: function that sleeps for some seconds.
    clock: function that returns monotonic seconds.

    Raises ScenarioError without `real`, a finite cap, a zone and a template.
    """

    def __init__(
        self,
        zone: str,
        template: str,
        *,
        real: bool,
        cap_usd: float,
        call: Call = _call,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not real:
            raise ScenarioError("gcloud spends real money; give --real and --cap USD, or another backend")
        if not (math.isfinite(cap_usd) and cap_usd > 0):
            raise ScenarioError("gcloud spends real money; limit it with --cap USD")
        if not zone or not template:
            raise ScenarioError("gcloud needs --zone and --template, the name of your instance template")
        self._zone, self._template = zone, template
        self._call, self._wait, self._clock = call, wait, clock
        self._begun_s: dict[tuple[str, str], float] = {}
        """Owner and token → time of the first creation, s."""

    def refusal(self, order: Order) -> str:
        """Return the refusal if the order wants a parameter server, else ""."""
        return "the adapter starts no parameter servers; leave --server out" if order.server else ""

    def launch(self, order: Order) -> tuple[str, ...]:
        """Create the instances that do not exist yet; see Provisioner."""
        if problem := self.refusal(order):
            raise ScenarioError(problem)
        there = {row["name"] for row in self._listed(order.owner, order.token)}
        self._begun_s.setdefault((order.owner, order.token), self._clock())
        for rank, name in enumerate(order.names()):
            if name not in there:
                self._create(order, rank, name)
        return order.names()

    def _create(self, order: Order, rank: int, name: str) -> None:
        with tempfile.TemporaryDirectory(prefix="twinbed-gcloud-") as folder:
            script = Path(folder, "startup.sh")
            script.write_text(script_of(order, rank))
            self._run(
                "create",
                name,
                f"--zone={self._zone}",
                f"--source-instance-template={self._template}",
                f"--machine-type={order.kind.name.removeprefix(f'{order.kind.provider}/')}",
                f"--labels={OWNER}={order.owner},{TOKEN}={order.token}",
                f"--max-run-duration={math.ceil(order.lease_s)}s",
                "--instance-termination-action=DELETE",
                f"--provisioning-model={'SPOT' if order.spot else 'STANDARD'}",
                f"--metadata-from-file=startup-script={script}",
                "--quiet",
            )

    def status(self, order: Order) -> Mapping[str, State]:
        """Return the state of each instance."""
        states = {row["name"]: _state(row) for row in self._listed(order.owner, order.token)}
        return {name: states.get(name, State.GONE) for name in order.names()}

    def measure(self, order: Order, steps: int) -> Reading:
        """Read the steps of rank 0 from its serial port until there are enough; see Provisioner.

        Instances are billed from their creation. One that is taken away meanwhile is a reading with a
        problem.
        """
        return replace(self._measured(order, steps), from_launch=True)

    def _measured(self, order: Order, steps: int) -> Reading:
        begun_s = self._begun_s.get((order.owner, order.token), self._clock())
        wanted, first = WARM_UP_STEPS + steps + 1, order.names()[0]
        while self._clock() - begun_s < order.lease_s:
            try:
                said = self._run(
                    "get-serial-port-output", first, f"--zone={self._zone}", "--port=1", "--quiet"
                )
            except BackendError:
                if self.status(order)[first] in (State.CREATING, State.RUNNING):
                    raise
                return cannot_run(self._clock() - begun_s, f"{first} was taken away", revoked=order.spot)
            done, ends_ns = _steps_of(said)
            if done >= wanted:
                step_s = np.diff(ends_ns)[-steps:] * 1e-9
                return Reading(step_s, self._clock() - begun_s)
            if problem := _ended(said):
                return cannot_run(self._clock() - begun_s, problem)
            self._wait(POLL_S)
        return cannot_run(
            self._clock() - begun_s, f"not {steps} steps within the lease of {order.lease_s:g} s"
        )

    def stop(self, owner: str, token: str) -> None:
        """Delete the instances of an order. Raises BackendError if some still exist afterwards."""
        rows = self._listed(owner, token)
        if not rows:
            return
        problem = ""
        for zone in sorted({_zone(row) for row in rows}):
            names = [row["name"] for row in rows if _zone(row) == zone]
            try:
                self._run("delete", *names, f"--zone={zone}", "--delete-disks=all", "--quiet")
            except BackendError as error:  # An instance may have ended by itself meanwhile.
                problem = f" ({error})"
        if left := [row["name"] for row in self._listed(owner, token)]:
            raise BackendError(f"gcloud did not delete {', '.join(left)}{problem}")

    def held(self, owner: str) -> tuple[Held, ...]:
        """Return the owner's instances in all zones, including stopped ones."""
        rows = sorted(self._listed(owner), key=lambda row: str(row["name"]))
        return tuple(Held(row["name"], row["labels"].get(TOKEN, ""), _state(row)) for row in rows)

    def _listed(self, owner: str, token: str = "") -> list[dict[str, Any]]:
        wanted = f"labels.{OWNER}={owner}" + (f" AND labels.{TOKEN}={token}" if token else "")
        said = self._run("list", f"--filter={wanted}", "--format=json(name,zone,status,labels)", "--quiet")
        try:
            rows = json.loads(said)
            return [
                {**row, "name": str(row["name"]), "labels": dict(row.get("labels") or {})} for row in rows
            ]
        except (ValueError, TypeError, KeyError):
            raise BackendError("gcloud list: its answer is no list of instances; update gcloud") from None

    def _run(self, verb: str, *arguments: str) -> str:
        answer = self._call(("gcloud", "compute", "instances", verb, *arguments))
        if answer.code:
            lines = [line for line in answer.err.splitlines() if "ERROR" in line] or answer.err.splitlines()
            raise BackendError(f"gcloud {verb}: {lines[0] if lines else f'it ended with {answer.code}'}")
        return answer.out


def script_of(order: Order, rank: int, console: str = "/dev/ttyS0", poll_s: float = POLL_S) -> str:
    """Return the start-up script of an instance. console: device on which the script reports steps."""
    command = shlex.join(order.command)
    return _JOB.format(
        rank=rank,
        workers=order.workers,
        master=order.names()[0],
        hook=base64.b64encode((HOOK / "sitecustomize.py").read_bytes()).decode(),
        folder=f"cd {shlex.quote(order.directory)} && " if order.directory else "",
        command=command,
        bytes=8 * LAST_STEPS,
        steps=_STEPS,
        end=_END,
        console=console,
        poll=f"{poll_s:g}",
    )


def _steps_of(said: str) -> tuple[int, np.ndarray]:
    """Return the number of steps, and the ends of the last ones, ns, from the last complete report."""
    lines = [
        line.split() for line in said.splitlines()[: None if said.endswith("\n") else -1] if _STEPS in line
    ]
    if not lines:
        return 0, np.empty(0, dtype=np.int64)
    words = lines[-1][lines[-1].index(_STEPS) + 1 :]
    if not all(word.isdigit() for word in words):
        return 0, np.empty(0, dtype=np.int64)
    return int(words[0]) if words else 0, np.array(words[1:], dtype=np.int64)


def _ended(said: str) -> str:
    """Return how the job ended, "" while it runs."""
    for line in said.splitlines():
        if _END in line:
            code, _, words = line.partition(_END)[2].strip().partition(" ")
            return f"the job ended with {code} before its steps were measured: {words.strip() or 'no output'}"
    return ""


def _state(row: Mapping[str, Any]) -> State:
    return _STATES.get(str(row.get("status")), State.FAILED)


def _zone(row: Mapping[str, Any]) -> str:
    return str(row.get("zone", "")).rsplit("/", 1)[-1]
