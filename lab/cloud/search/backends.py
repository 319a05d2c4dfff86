"""The backends of a search by name: the twin's rehearsal, this machine's emulated types, Google Cloud.

For: `twinbed recommend --search --backend NAME`, and a search on one of them. Not for: its steps (loop.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.jobs import Configuration, Job, candidates
from control.provisioner import Order, Provisioner
from lab.cloud.input.job_file import JobFile
from lab.cloud.input.store import Measurements
from lab.cloud.run import expected
from lab.cloud.run.batches import tunes_batch
from lab.cloud.run.recommending import Question
from lab.cloud.search import Backend
from lab.cloud.search.loop import Limits, Search, Searched, Trial
from testbed.cloud.emulated import SCALE
from testbed.cloud.gcloud import Gcloud
from testbed.cloud.provisioner import emulated_instances
from traces.catalogue.catalogue import Catalogue
from twin.cloud.provisioner import Virtual
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Paying:
    """The permission to use a real cloud.

    real: whether money may be spent.
    cap_usd: most that may be spent, US$.
    zone, template: zone and instance template of the instances.
    """

    real: bool = False
    cap_usd: float = np.inf
    zone: str = ""
    template: str = ""


@contextmanager
def opened(backend: Backend, question: Question, paying: Paying) -> Iterator[Provisioner]:
    """Yield the provisioner. Raises ScenarioError for a real cloud without permission and cap, or in another
    region than the question's prices."""
    job, region = question.job, question.market.region
    if backend is Backend.TESTBED:
        with emulated_instances() as provisioner:
            yield provisioner
    elif backend is Backend.TWIN:
        if job.local_run is None:
            raise ScenarioError(
                f"job {job.name}: a search on the twin needs a local run, which shows the time of a step; "
                "make one with twinbed profile"
            )
        yield Virtual(lambda order: modelled_step_s(job, order))
    else:
        cloud = Gcloud(paying.zone, paying.template, real=paying.real, cap_usd=paying.cap_usd)
        if not paying.zone.startswith(f"{region}-"):
            raise ScenarioError(
                f"--zone {paying.zone} is not in {region}, whose prices --cap counts; give both of one region"
            )
        yield cloud


def searched(
    question: Question,
    file: JobFile,
    path: Path,
    catalogue: Catalogue,
    measurements: Measurements,
    backend: Backend,
    paying: Paying,
    limits: Limits,
    say: Callable[[str], object],
) -> Searched:
    """Return the result of a search on a backend. path: the job's file; its command runs in that folder.

    A rehearsal's trials are not stored. Raises ScenarioError for batches that the backend cannot compare, and
    ScenarioError and BackendError as `opened` and Search do.
    """
    if backend is Backend.GCLOUD and tunes_batch(question) and not _knows_noise(question.job, measurements):
        raise ScenarioError(
            "--backend gcloud: it does not measure the gradients' noise, without which batches cannot be "
            "compared; search with --backend testbed first, or leave out --batches and --method scavenger"
        )
    with opened(backend, question, paying) as provisioner:
        return Search(
            question,
            catalogue,
            measurements,
            provisioner,
            lambda batch: command_of(file, backend, batch),
            str(path.resolve().parent),
            limits,
            stored=backend is not Backend.TWIN,
            noisy=backend is not Backend.TWIN,
            say=say,
            source=f"search on {backend}",
        ).run()


def _knows_noise(job: Job, measurements: Measurements) -> bool:
    return any(run.job == job.name and run.noise is not None for run in measurements.runs())


def rehearsed(
    question: Question,
    catalogue: Catalogue,
    measurements: Measurements,
    limits: Limits,
    heard: Callable[[Trial], object],
) -> Searched:
    """Return the result of a search on the twin, which runs no command and stores nothing.

    heard: called with each trial that has ended. Raises ScenarioError as `opened` and Search do.
    """
    with opened(Backend.TWIN, question, Paying()) as provisioner:
        return Search(
            question,
            catalogue,
            measurements,
            provisioner,
            lambda _batch: ("true",),
            limits=limits,
            stored=False,
            noisy=False,
            heard=heard,
        ).run()


def command_of(file: JobFile, backend: Backend, batch: int) -> tuple[str, ...]:
    """Return the job's command; it runs until it is stopped. On a real cloud `python` is its own python3."""
    if backend is Backend.TWIN:
        return ("true",)
    words = file.command_line(batch=batch, steps=10**9)
    if backend is Backend.GCLOUD and words[0] == sys.executable:
        return ("python3", *words[1:])
    return words


def modelled_step_s(job: Job, order: Order) -> float:
    """Return the time of a step by the analytic model of the local run, s; NaN where it does not apply."""
    kinds = {order.kind.name: order.kind}
    server, rates = "", dict[str, float]()
    if order.server is not None:
        server = order.server.name
        kinds[server], rates[server] = order.server, order.server.network_bps
    row = Configuration(order.kind.name, order.workers, order.batch, int(bool(server)), server)
    among = candidates(kinds, dict.fromkeys(kinds, 1.0), [row])
    return float(expected.step_s(job.local_run, among.batch, among, rates)[0])


def said_of(backend: Backend) -> str:
    """Return a sentence on the meaning of a search's figures on a backend."""
    return {
        Backend.TESTBED: (
            f"Types are emulated at 1/{1 / SCALE:g} of their size on this machine's cores. Times, cost and "
            "what the trials were billed are those of the types; no money was spent. Trials are in the "
            "measurements, and the next twinbed recommend knows them."
        ),
        Backend.TWIN: (
            "A rehearsal: steps take the time of the local run's analytic model, so it shows what the "
            "search would try and pay, and nothing new about the job. Nothing is stored."
        ),
        Backend.GCLOUD: (
            "Trials ran on Compute Engine and are in the measurements. Prices are the catalogue's; your bill "
            "also has disks and network."
        ),
    }[backend]
