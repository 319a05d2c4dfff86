"""A private, real Slurm. It runs jobs where our scheduler decides, or it decides itself (FIFO with backfill).

For: `SlurmGangs`, an executor whose processes Slurm starts and ends, and `Backfill`, Slurm's own decisions as
a scheduler. Not for: an existing cluster. munged, slurmctld and a slurmd for each server run on this machine
in cgroups, folders and ports of the run, and end with it. A CPU of a slurmd emulates a GPU. Sources:
slurm.conf(5), scontrol(1), squeue(1) of Slurm 22.05.
"""

from __future__ import annotations

import math
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from control.scheduler.model import Assignment, Cluster, State
from control.scheduler.ports import Scheduler
from testbed.cluster.gangs import GRACE_S, Gangs, Life, Training, free_port
from testbed.containers.host.container import Container, ContainerSpec, remove_all
from testbed.containers.host.identity import WITHOUT_RIGHTS
from testbed.waiting import until
from twinbed import BackendError

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "srun")
_UP_S = 20.0
_BUSY_S = 15.0
"""Longest time of one question to Slurm, and time for which a busy Slurm is asked again, s."""
_LOOK_S = 0.2
"""Time between two questions to Slurm about all jobs, s."""

_FIELDS = ",".join(f"{field}:256|" for field in ("JobID", "State", "NodeList", "exit_code"))
"""Columns that squeue prints, each padded to 256 characters and closed by a bar."""
_SHELL = 128
"""A shell's exit code for a program that a signal ended is this and the signal's number."""

_CONF = """
ClusterName=twinbed
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait={grace}
OverTimeLimit=UNLIMITED
MpiDefault=none
SwitchType=switch/none
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    return [name for name in NEEDED if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]


class SlurmGangs(Gangs):
    """The jobs' processes, started and ended by a Slurm of our own; otherwise as Gangs."""

    def __init__(self, jobs: Sequence[Training], cluster: Cluster) -> None:
        if absent := missing():
            raise BackendError(f"{absent[0]}: not installed; apt-get install slurmctld slurmd munge")
        super().__init__(jobs)
        self._cluster = cluster
        self._ids: dict[int, str] = {}
        self._gates: dict[int, Path] = {}
        """Job → file without which the processes of its life do not begin."""
        self._states: dict[str, tuple[str, str, int]] = {}
        self._looked = -math.inf
        self._daemons: list[Container] = []

    def _prepare(self) -> None:
        super()._prepare()
        # Root runs what lies there. The jobs' user cannot write in it.
        self._own = own = self._folder.parent / "slurm"
        own.mkdir(mode=0o711)
        (own / "state").mkdir()
        (own / "key").write_bytes(secrets.token_bytes(1024))
        (own / "key").chmod(0o400)
        host = socket.gethostname()
        nodes = [
            f"NodeName=n{server} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={gpus} "
            "RealMemory=1000"
            for server, gpus in enumerate(self._cluster.server_gpus.tolist())
        ]
        self._conf = own / "slurm.conf"
        text = _CONF.format(host=host, port=free_port(), folder=own, grace=round(GRACE_S))
        self._conf.write_text(text + "\n".join(nodes) + "\n")
        self._undo.callback(remove_all, self._daemons)
        # When the run ends, Slurm ends first, and questions to it would wait in vain.
        self._undo.callback(self._ids.clear)
        files = ("key-file=key", "socket=munge.socket", "pid-file=pid", "log-file=log", "seed-file=seed")
        options = [f"--{key}={own / name}" for key, name in (file.split("=") for file in files)]
        self._daemon("munged", "--foreground", "--force", *options)
        if not until((own / "munge.socket").exists, _UP_S):
            raise BackendError(f"munged does not start: {self._words_of_daemons()}")
        self._daemon("slurmctld", "-D")
        for server in range(len(nodes)):
            self._daemon("slurmd", "-D", "-N", f"n{server}")

        def idle() -> bool:
            return self._ask("sinfo", "-h", "-o", "%D", "-t", "idle", check=False).strip() == str(len(nodes))

        if not until(idle, _UP_S, _LOOK_S):
            raise BackendError(f"Slurm is not up within {_UP_S:g} s: {self._words_of_daemons()}")

    def _daemon(self, program: str, *options: str) -> None:
        spec = ContainerSpec(
            f"{program}-{len(self._daemons)}", (program, *options), env={"SLURM_CONF": str(self._conf)}
        )
        container = Container(spec, self._driver.create(self._run, spec.name), None)
        self._daemons.append(container)
        container.start((container, container), self._conf.parent / "logs", None)

    def _words_of_daemons(self) -> str:
        logs = [*self._conf.parent.glob("*.log"), *(self._conf.parent / "logs").glob("*.log")]
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if "error" in line.lower()), "no error was logged")

    def _ask(self, *command: str, check: bool = True) -> str:
        """Return the output of a Slurm command. The command is repeated while Slurm is busy, and so is a
        failed query, unless a daemon has ended. A command that SIGPIPE ends could not send its question, so
        Slurm counts as busy then, too.
        """
        environment = {"SLURM_CONF": str(self._conf), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, env=environment, timeout=_BUSY_S
                )
            except subprocess.TimeoutExpired:
                if not check:
                    return ""
                why = f"no answer within {_BUSY_S:g} s"
                raise BackendError(
                    f"{shlex.join(command)}: {why}; its log: {self._words_of_daemons()}"
                ) from None
            unheard = "Unable to contact" in done.stderr or done.returncode == -signal.SIGPIPE
            again = unheard or (done.returncode and command[0] == "squeue")
            ended = any(daemon.poll() is not None for daemon in self._daemons)
            if not again or not check or ended or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        if check and done.returncode:
            why = done.stderr.strip() or f"it ended with {done.returncode} and gave no reason"
            raise BackendError(f"{shlex.join(command)}: {why}; its log: {self._words_of_daemons()}")
        return done.stdout

    def submit(self, job: int) -> None:
        """Hand a job over to Slurm, which decides when and where it runs. It begins once `start` sets its
        quota."""
        super().start(job, {}, math.inf)

    def start(self, job: int, servers: Mapping[int, int], quota_cores: float) -> None:
        """Have Slurm start a gang on these servers. If Slurm started the gang by itself, set its quota."""
        if job in self._lives:
            self._lives[job].quota_cores = quota_cores
            self._gates[job].touch()
        else:
            super().start(job, servers, quota_cores)

    def _launch(self, job: int, life: Life, servers: Mapping[int, int]) -> None:
        scripts, logs = self._own / f"life-{self._started}", life.folder / "logs"
        scripts.mkdir()
        with self._identity.acting():
            logs.mkdir()
        self._gates[job] = scripts / "gate"
        if servers:
            self._gates[job].touch()
        for rank, container in enumerate(life.containers):
            text = self._script(container, logs / f"{rank}.log", self._gates[job])
            (scripts / f"{rank}.sh").write_text(text)
        # Slurm keeps the script of the first life. That script reads this file to find the script of the
        # present life.
        life_of = self._own / f"life-of-{job}"
        life_of.write_text(str(scripts))
        nodes = ",".join(f"n{server}" for server in servers)
        if job in self._ids:
            where = (f"ReqNodeList={nodes}", f"NumNodes={len(servers)}-{len(servers)}")
            self._ask("scontrol", "update", f"JobId={self._ids[job]}", "StartTime=now", *where)
            self._ask("scontrol", "release", self._ids[job])
        else:
            script = self._own / f"job-{job}.sh"
            ranks = "exec sh $0/$SLURM_PROCID.sh"
            run = f"exec srun -Q --mpi=none sh -c '{ranks}' $(cat {life_of})"
            script.write_text(f"#!/bin/sh\n{run}\n")
            there = ("-w", nodes, "-N", str(len(servers))) if servers else ()
            options = (
                "--parsable",
                "--requeue",
                "-o",
                "/dev/null",
                "-t",
                "60",
                "-n",
                str(len(life.containers)),
            )
            self._ids[job] = self._ask("sbatch", *options, *there, str(script)).strip()
        self._looked = -math.inf

    def _script(self, container: Container, log: Path, gate: Path) -> str:
        """Return the shell script of a process: it waits for the gate, enters its cgroup, gives up all
        rights, and trains."""
        doors = "\n".join(f"echo $$ > {place}/cgroup.procs" for place in container.group.directories)
        spec, who = container.spec, self._identity
        variables = [f"{key}={value}" for key, value in {**who.environment, **spec.env}.items()]
        user = (f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups")
        trains = ("sh", "-c", f'exec "$@" >{log} 2>&1', "sh", *spec.command)
        command = ("env", "-i", *variables, "setpriv", *user, *WITHOUT_RIGHTS[1:], *trains)
        waits = f"until [ -e {gate} ]; do sleep 0.05; done"
        return f"{waits}\n{doors}\ncd {spec.directory}\nexec {shlex.join(command)}\n"

    def _terminate(self, job: int, life: Life) -> None:  # noqa: ARG002 - the processes are Slurm's
        # Slurm can only hold a job that waits for a server, and only requeue a job that runs.
        for order in ("hold", "requeuehold"):
            self._ask("scontrol", order, self._ids[job], check=False)
        self._looked = -math.inf

    def _codes(self, job: int, life: Life) -> list[int | None]:
        state, _, code = self.states().get(self._ids[job], ("GONE", "", 1))
        alive = state in ("RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING")
        if alive or (state == "PENDING" and life.leaving is None):
            return [None]
        if state in ("COMPLETED", "PENDING", "REQUEUE_HOLD"):
            return [0]
        return [_SHELL - code if code > _SHELL else code or 1]

    def states(self) -> dict[str, tuple[str, str, int]]:
        """Return Slurm's job id → (state, nodes, exit code of its script)."""
        if time.monotonic() > self._looked + _LOOK_S:
            lines = self._ask("squeue", "-h", "-t", "all", "-O", _FIELDS).splitlines()
            rows = [[part.strip() for part in line.split("|")[:4]] for line in lines]
            self._states = {
                job: (state, nodes, os.waitstatus_to_exitcode(int(code))) for job, state, nodes, code in rows
            }
            self._looked = time.monotonic()
        return self._states

    def holders(self) -> dict[int, list[int]]:
        """Return job → servers for the jobs that Slurm runs or has run now, in order of submission."""
        self._looked = -math.inf
        states = self.states()
        there = {job: states[number] for job, number in self._ids.items() if number in states}
        held = ("RUNNING", "COMPLETING", "COMPLETED")
        return {
            job: self._servers(nodes) for job, (what, nodes, _) in there.items() if nodes and what in held
        }

    def room(self) -> list[int]:
        """Return the number of GPUs of each server."""
        return [int(gpus) for gpus in self._cluster.server_gpus]

    def _servers(self, nodes: str) -> list[int]:
        names = (
            self._ask("scontrol", "show", "hostnames", nodes).split() if "[" in nodes else nodes.split(",")
        )
        return [int(name.removeprefix("n")) for name in names]

    def _remove(self, job: int) -> None:
        # A Slurm that no longer answers must not keep the run's groups from being removed.
        number = self._ids.get(job, "")
        if self._lives[job].leaving is None and self._states.get(number, ("",))[0] == "RUNNING":
            # The gang was killed, or the run ends. The held job starts again only when it is released.
            self._ask("scontrol", "requeuehold", number, check=False)
        super()._remove(job)


class Backfill(Scheduler):
    """Slurm's own decisions: jobs are submitted as they arrive, and Slurm reports where they run."""

    at_events = True

    def __init__(self, gangs: SlurmGangs, every_s: float) -> None:
        self._gangs, self._every_s = gangs, every_s
        self._known: set[int] = set()

    def on_round(self, state: State) -> Assignment:
        """Return the GPUs of jobs as Slurm reports them.

        A job may have begun and ended since the last report. It then gets its GPUs now, if they are free.
        """
        for row in state.by_arrival().tolist():
            job = int(state.job[row])
            if job not in self._known:
                self._known.add(job)
                self._gangs.submit(job)
        row_of = {job: row for row, job in enumerate(state.job.tolist())}
        lines, free = [], self._gangs.room()
        for job, servers in self._gangs.holders().items():
            if job not in row_of:
                continue
            given = _shares(int(state.gpus[row_of[job]]), servers)
            # A job's end may not be recorded yet. Then its successor waits for the next check.
            if all(gpus <= free[server] for server, gpus in given):
                lines += [(row_of[job], server, gpus) for server, gpus in given]
                for server, gpus in given:
                    free[server] -= gpus
        rows = np.array(sorted(lines), np.int64).reshape(-1, 3)
        return Assignment(rows[:, 0], rows[:, 1], rows[:, 2])

    def wake_s(self, state: State, given: Assignment) -> float:  # noqa: ARG002 - Slurm decides when it likes
        """Return the time of the next report, s."""
        return state.now_s + self._every_s


def _shares(gpus: int, servers: Sequence[int]) -> list[tuple[int, int]]:
    """Return (server, GPUs) of a gang. Slurm spreads GPUs evenly; the first servers get the remainder."""
    shares = []
    for place, server in enumerate(servers):
        here = -(-gpus // (len(servers) - place))
        shares.append((server, here))
        gpus -= here
    return shares
