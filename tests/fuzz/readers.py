"""The readers, each by name: what the program itself calls, and the folder of its corpus.

For: `python -m tests.fuzz` and the replay. Another reader is one more row of READERS and a folder of that
name in corpus/.
A file `valid-*` there is read, and any other may be refused. `heavy-*` is replayed and not changed further.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twinbed import TraceError, TwinbedError

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader. name: also of its corpus; read: reads a file as the program does; suffix: of the file's
    name."""

    name: str
    read: Callable[[Path], object]
    suffix: str = ""

    def corpus(self) -> list[Path]:
        """Return the files to begin with."""
        return sorted(path for path in (CORPUS / self.name).iterdir() if path.is_file())

    def seeds(self) -> list[bytes]:
        """Return the content of the files that are to be changed."""
        return [path.read_bytes() for path in self.corpus() if not path.name.startswith("heavy-")]


def _trace(path: Path, name: str, **options: object) -> object:
    from traces.load import load

    trace = load(path, format=name, **options)
    return load(path, format=name, containers=trace.containers[:1], end_s=trace.interval_s * 2, **options)


def _any_trace(path: Path) -> object:
    from traces.load import load

    return load(path)


def _surf(path: Path) -> object:
    from traces.readers import surf

    shutil.copy(CORPUS / "beside" / surf.TASKS, path.with_name(surf.TASKS))
    return _trace(path, "surf")


def _surf_tasks(path: Path) -> object:
    from traces.readers import surf

    fragments = path.with_name(surf.FILES[0])
    shutil.copy(CORPUS / "surf" / "valid-fragments.parquet", fragments)
    shutil.copy(path, path.with_name(surf.TASKS))
    return _trace(fragments, "surf")


def _in_force(path: Path) -> object:
    from traces.prometheus import kept

    trace = path.with_name("shop.parquet")
    shutil.copy(CORPUS / "beside" / trace.name, trace)
    shutil.copy(path, kept.beside(trace))
    return kept.read(trace)


def _rates(path: Path) -> object:
    from traces.request_rates import read_rates, read_timestamps

    return _first(path, read_rates, read_timestamps)


def _prices(path: Path) -> object:
    from traces.readers import prices

    return _first(path, prices.read, prices.availability)


def _training(path: Path) -> object:
    from traces.readers import training

    return _first(
        path,
        training.placements,
        training.scalability,
        training.throughputs,
        training.language_models,
        training.submissions,
        lambda file: training.profiled(file, file),
    )


def _first(path: Path, *reads: Callable[[Path], object]) -> object:
    """Try one function after the other; raise the last refusal if all of them refuse."""
    refusal: TwinbedError | None = None
    for read in reads:
        try:
            return read(path)
        except TraceError as error:
            refusal = error
    assert refusal is not None
    raise refusal


def _chakra(path: Path) -> object:
    from traces.readers import chakra

    return chakra.read(path, 8)


def _kineto(path: Path) -> object:
    from traces.readers import kineto

    return kineto.read(path)


def _faults(path: Path) -> object:
    from traces.fault_rates import read_downtimes

    return read_downtimes(path)


def _catalogue(path: Path) -> object:
    from lab.cloud.run.recommending import Market, priced
    from traces.catalogue import catalogue

    read = catalogue.load(prices=path)
    first = read.prices.iloc[0]
    return priced(read, Market(str(first["region"]), str(first["market"])))


def _sparecores(path: Path) -> object:
    from traces.catalogue import sparecores, table

    return table.listings(sparecores.read(path))


def _billing(path: Path) -> object:
    from lab.cloud.input.data_set import rules_of
    from traces.catalogue import catalogue

    read = catalogue.load(billing=path)
    return [rules_of(read, provider) for provider in read.billings]


def _measurements(path: Path) -> object:
    from lab.cloud.input.store import as_history, read_csv

    return as_history(read_csv(path))


def _measured_jobs(path: Path) -> object:
    from lab.cloud.input.data_set import load
    from traces.catalogue import catalogue

    return load(path, ROOT / "scenarios" / "jobs", catalogue.load())


def _local_run(path: Path) -> object:
    from lab.cloud.input.local_run_file import read

    return read(path)


def _predictor(path: Path) -> object:
    from lab.cloud.run.model_file import read

    return read(path)


def _scenario(path: Path) -> object:
    from lab.ask import scenario

    return scenario.expand(scenario.load(path))


def _app(path: Path) -> object:
    from lab.containers.input.services.application import load_app
    from lab.containers.input.services.graph import compile_graph

    return compile_graph(load_app(path))


def _job(path: Path) -> object:
    from lab.cloud.input.job_file import as_job, load

    return as_job(load(path))


def _recording_request(path: Path) -> object:
    from lab.containers.input.recording import from_file

    return from_file(path, None)


def _deployment(path: Path) -> object:
    from lab.containers.input.deployment import load

    return load(path)


def _fabric_plan(path: Path) -> object:
    from lab.fabric.real.plan_file import plan

    return plan(path, {})


def _container_calibration(path: Path) -> object:
    from lab.containers.calibrate.values import load_calibration, machine

    return machine(load_calibration(path), {})


def _fabric_calibration(path: Path) -> object:
    from lab.fabric.calibrate.values import load_calibration

    return load_calibration(path)


def _manifest(path: Path) -> object:
    from lab.runs.store import MANIFEST, RunStore

    run = path.with_name("store") / "mine-escra-0123456789"
    shutil.rmtree(run.parent, ignore_errors=True)
    shutil.copytree(CORPUS / "beside" / run.name, run)
    shutil.copy(path, run / MANIFEST)
    store = RunStore(run.parent)
    store.list()
    opened = store.open(run.name)
    return opened.policy, opened.seed, opened.metrics, opened.tables, opened.verify()


def _run_table(path: Path) -> object:
    from lab.runs.store import RunStore

    run = path.with_name("store") / "mine-escra-0123456789"
    shutil.rmtree(run.parent, ignore_errors=True)
    shutil.copytree(CORPUS / "beside" / run.name, run)
    shutil.copy(CORPUS / "manifest" / "valid-manifest.json", run / "manifest.json")
    shutil.copy(path, run / "periods.parquet")
    return RunStore(run.parent).open(run.name).frame("periods")


def _datagram(path: Path) -> object:
    from testbed.containers.remote.datagrams import _HEADER, _MAC_BYTES, Gate, _mac
    from tests.testbed.containers.remote.test_books import started

    key, data = b"k" * 32, path.read_bytes()
    books = started()
    gate = Gate(books._refusals)
    gate.open(1, key)
    # An agent that has a key signs what it likes.
    body = data[:-_MAC_BYTES]
    signed = body + _mac(key, body) if len(body) >= _HEADER.size else b""
    for datagram in (data, signed):
        batch = gate.receive(datagram, "fuzz")
        if batch is not None:
            books.telemetry([("a0", batch)], 1.0)
    return books.reports + books.stale


def _message(path: Path) -> object:
    from google.protobuf.message import DecodeError

    from testbed.containers.remote.messages_pb2 import Report
    from testbed.containers.remote.refusals import RefusedError
    from tests.testbed.containers.remote.test_books import applied, say, started

    try:
        report = Report.FromString(path.read_bytes())
    except DecodeError:
        return "refused"  # gRPC ends such a call itself
    books = started()
    applied(books)
    try:
        say(books, "a0", report, 1.0)
    except RefusedError:
        return "refused"  # the controller ends the call with this
    books.tick(2.0)
    return applied(books)


def _packet(path: Path) -> object:
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    from control.fast_path import bfd
    from testbed.fabric.capture import decode

    data = path.read_bytes()
    try:
        packet = Ether(data)
    except Exception:
        packet = Raw(data)  # as scapy's sockets do with what is no frame
    return bfd.parse(data[14:]), decode(packet, "tor0", 0.0)


_GZIPPED = ".csv.gz"

READERS = {
    reader.name: reader
    for reader in (
        Reader("recording", partial(_trace, name="recording"), ".parquet"),
        Reader("csv", partial(_trace, name="csv"), ".csv"),
        Reader("gzip", partial(_trace, name="csv"), _GZIPPED),
        Reader("any_trace", _any_trace),
        Reader("sockshop", partial(_trace, name="sockshop", fault_service="web"), ".csv"),
        Reader("deathstarbench", partial(_trace, name="deathstarbench"), ".csv"),
        Reader("nezha", partial(_trace, name="nezha", app="T"), ".csv"),
        Reader("google_jobs", partial(_trace, name="google_jobs"), ".csv"),
        Reader("bitbrains", partial(_trace, name="bitbrains"), ".csv"),
        Reader("query_range", partial(_trace, name="query_range"), ".json"),
        Reader("openmetrics", partial(_trace, name="openmetrics"), ".om"),
        Reader("grafana_csv", partial(_trace, name="grafana_csv"), ".csv"),
        Reader("in_force", _in_force, ".parquet"),
        Reader("surf", _surf, ".parquet"),
        Reader("surf_tasks", _surf_tasks, _GZIPPED),
        Reader("rates", _rates, ".csv"),
        Reader("prices", _prices, ".csv"),
        Reader("training", _training, ".csv"),
        Reader("kineto", _kineto, ".json"),
        Reader("chakra", _chakra, ".et"),
        Reader("chakra_json", _chakra, ".json"),
        Reader("faults", _faults, ".csv"),
        Reader("catalogue", _catalogue, ".csv"),
        Reader("price_table", _catalogue, ".parquet"),
        Reader("sparecores", _sparecores, ".db"),
        Reader("billing", _billing, ".toml"),
        Reader("measurements", _measurements, ".csv"),
        Reader("measured_jobs", _measured_jobs, ".csv"),
        Reader("local_run", _local_run, ".parquet"),
        Reader("predictor", _predictor, ".twinbed"),
        Reader("scenario", _scenario, ".yaml"),
        Reader("app", _app, ".yaml"),
        Reader("job", _job, ".yaml"),
        Reader("recording_request", _recording_request, ".yaml"),
        Reader("deployment", _deployment, ".yaml"),
        Reader("fabric_plan", _fabric_plan, ".yaml"),
        Reader("container_calibration", _container_calibration, ".toml"),
        Reader("fabric_calibration", _fabric_calibration, ".toml"),
        Reader("manifest", _manifest, ".json"),
        Reader("run_table", _run_table, ".parquet"),
        Reader("datagram", _datagram),
        Reader("message", _message),
        Reader("packet", _packet),
    )
}
"""Every reader by name."""
