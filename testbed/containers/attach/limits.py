"""Limits of a container that another system runs: reading, setting and restoring them.

For: limits that stay when this process ends, unlike those of cgroup.attached. Not for: choosing limits
(lab.containers.apply). The engine sets a limit first, so that its own record agrees and a restart keeps the
limit, but only if it can also remove it: Docker can neither remove a memory limit nor one of NanoCpus. The
cgroup's file is written if the engine cannot set the limit, or its answer does not show in the file. Sources:
Docker Engine API 1.41 (ContainerUpdate), libpod API 4.0, control/allocator/shares.py for shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control.allocator.shares import LEAST_SHARES, MOST_SHARES, SHARES_PER_CORE
from testbed.containers.attach.finding import Found
from testbed.containers.cgroup.attached import UNIFIED, directories_of, put_back
from testbed.containers.cgroup.drivers import V1, V2
from testbed.containers.cgroup.files import field, read, write
from testbed.containers.cgroup.group import (
    NO_LIMIT_BYTES,
    PAGE_BYTES,
    QUOTA_PERIOD_US,
    quota_us,
    shares_of,
    weight_of,
    whole_pages,
)
from testbed.containers.cgroup.meter import Meter
from twinbed import BackendError

CPU_REQUEST, CPU_LIMIT, MEMORY_LIMIT = "cpu_request_cores", "cpu_limit_cores", "memory_limit_bytes"
"""Quantities: cores as a weight against others, cores, bytes (swap included). math.inf is no limit."""

MARGIN_SHARE, MARGIN_BYTES = 0.1, 16 << 20
"""Least room that a memory limit leaves, as a share of the present use and in bytes: page tables and the
temporary memory of a request come on top of a working set."""

_MOST_WEIGHT = 10_000
_FILES: Mapping[bool, Mapping[str, tuple[str, ...]]] = {
    True: {
        CPU_REQUEST: ("cpu.shares",),
        CPU_LIMIT: ("cpu.cfs_period_us", "cpu.cfs_quota_us"),
        MEMORY_LIMIT: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    },
    False: {
        CPU_REQUEST: ("cpu.weight",),
        CPU_LIMIT: ("cpu.max",),
        MEMORY_LIMIT: ("memory.max", "memory.swap.max"),
    },
}
"""The control files of each quantity, by whether the cgroup is of version 1."""

QUANTITIES = (CPU_REQUEST, CPU_LIMIT, MEMORY_LIMIT)


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of a container since its cgroup was made.

    periods, throttled: CFS periods elapsed and throttled
    oom_kills: processes that the OOM killer took
    restarts: restarts by its engine
    incarnation: text that differs after a restart
    """

    periods: int
    throttled: int
    oom_kills: int
    restarts: int
    incarnation: str


class LimitedContainer:
    """One container of another system. Every method raises GroupGoneError if its cgroup no longer exists, and
    BackendError, with file and cure, if the machine refuses."""

    def __init__(self, found: Found, driver: V1 | V2) -> None:
        self.name, self.found = found.name, found
        self._v1 = isinstance(driver, V1)
        self._directories = directories_of(found.paths.get("") or found.paths, driver)

    def read(self) -> dict[str, float]:
        """Return the limits in force, by quantity."""
        return {quantity: self._read(quantity) for quantity in QUANTITIES if self._paths(quantity)}

    def settled(self, quantity: str, value: float) -> float:
        """Return a value in the form in which the kernel will hold it: whole µs, pages, shares."""
        if quantity == MEMORY_LIMIT:
            return math.inf if math.isinf(value) else float(whole_pages(int(value)))
        if quantity == CPU_LIMIT:
            wanted = quota_us(value)
            return math.inf if wanted is None else wanted / QUOTA_PERIOD_US
        shares = shares_of(value)
        return _cores(shares) if self._v1 else _cores_of_weight(weight_of(shares))

    def record(self) -> dict[str, Any]:
        """Return the data for `put_back`: the control files' texts and the engine's record."""
        texts = {path.name: read(path) for quantity in QUANTITIES for path in self._paths(quantity)}
        return {"files": texts, "engine": dict(self.found.record or {})}

    def set(self, quantity: str, value: float) -> None:
        """Put a value in force."""
        wanted = self.settled(quantity, value)
        if self._through_engine(self._body(quantity, wanted)) and self._read(quantity) == wanted:
            return
        self._write(quantity, wanted)
        held = self._read(quantity)
        if held != wanted:
            raise BackendError(
                f"{self.name}: {quantity} became {held:g} instead of {wanted:g}; try again later"
            )

    def put_back(self, quantity: str, value: float, record: Mapping[str, Any]) -> None:
        """Put back what `record` returned before; value: what `read` returned then."""
        self._through_engine(self._former_body(quantity, value, record.get("engine", {})))
        texts = record["files"]
        paths = [path for path in self._paths(quantity) if path.name in texts]
        problems = put_back([(path, texts[path.name]) for path in paths])
        if problems:
            raise problems[0]

    def floor_bytes(self) -> int:
        """Return the smallest memory limit that leaves room: the working set and a margin."""
        meter = Meter(tuple(dict.fromkeys(self._directories.values())))
        try:
            used = max(0, meter.charged_bytes() - meter.inactive_file_bytes())
        finally:
            meter.close()
        return used + max(round(MARGIN_SHARE * used), MARGIN_BYTES)

    def counters(self) -> Counters:
        """Return the container's counts since its cgroup was made."""
        stat = read(self._file("cpu.stat")).encode()
        kills = read(self._file("memory.oom_control" if self._v1 else "memory.events")).encode()
        return Counters(
            field(stat, b"nr_periods"),
            field(stat, b"nr_throttled"),
            field(kills, b"oom_kill"),
            self.found.restarts,
            self.found.incarnation,
        )

    # --- control files ---------------------------------------------------------------------------

    def _file(self, name: str) -> Path:
        return self._directories[name.partition(".")[0] if self._v1 else UNIFIED] / name

    def _paths(self, quantity: str) -> list[Path]:
        """Return the control files of a quantity that this kernel has."""
        return [path for path in map(self._file, _FILES[self._v1][quantity]) if path.exists()]

    def _read(self, quantity: str) -> float:
        texts = [read(path) for path in self._paths(quantity)]
        if quantity == MEMORY_LIMIT:
            size = NO_LIMIT_BYTES if texts[0] == "max" else whole_pages(int(texts[0]))
            return math.inf if size >= NO_LIMIT_BYTES - PAGE_BYTES else float(size)
        if quantity == CPU_REQUEST:
            return _cores(int(texts[0])) if self._v1 else _cores_of_weight(int(texts[0]))
        quota, period = (texts[1], texts[0]) if self._v1 else texts[0].split()
        return math.inf if quota in ("-1", "max") else int(quota) / int(period)

    def _write(self, quantity: str, value: float) -> None:
        if quantity == MEMORY_LIMIT:
            self._write_memory(value)
        elif quantity == CPU_REQUEST:
            shares = shares_of(value)
            self._put(*(("cpu.shares", shares) if self._v1 else ("cpu.weight", weight_of(shares))))
        elif self._v1:
            self._put("cpu.cfs_period_us", QUOTA_PERIOD_US)
            self._put("cpu.cfs_quota_us", -1 if math.isinf(value) else quota_us(value))
        else:
            self._put("cpu.max", f"{'max' if math.isinf(value) else quota_us(value)} {QUOTA_PERIOD_US}")

    def _write_memory(self, value: float) -> None:
        """Write the limits of memory and of swap. In v1, memsw is never below the limit itself. In v2, memory
        above the new limit is reclaimed first, because the kernel kills for the rest."""
        paths = self._paths(MEMORY_LIMIT)
        if self._v1:
            text = "-1" if math.isinf(value) else str(int(value))
            raising = value >= self._read(MEMORY_LIMIT)
            for path in reversed(paths) if raising else paths:
                write(path, text)
            return
        excess = int(read(self._file("memory.current"))) - value
        if excess > 0 and self._file("memory.reclaim").exists():
            _quietly(lambda: self._put("memory.reclaim", int(excess)))
        for path in paths[1:]:
            write(path, "max" if math.isinf(value) else "0")
        write(paths[0], "max" if math.isinf(value) else str(int(value)))

    def _put(self, name: str, value: object) -> None:
        write(self._file(name), str(value))

    # --- the engine's own record -----------------------------------------------------------------

    def _through_engine(self, body: Mapping[str, Any] | None) -> bool:
        """Send the request to the engine. Return whether the engine accepted it."""
        engine, container = self.found.engine, self.found.container
        if body is None or engine is None or container is None:
            return False
        return _quietly(lambda: engine.update(container, body))

    def _body(self, quantity: str, value: float) -> Mapping[str, Any] | None:
        """Return the request to the engine, None if the engine cannot set the limit or cannot remove it."""
        if self.found.engine is None:
            return None
        if self.found.engine.kind == "podman":
            return _podman(quantity, value)
        record = self.found.record or {}
        if quantity == CPU_REQUEST:
            return {"CpuShares": shares_of(value)}
        if quantity == MEMORY_LIMIT:
            known = record.get("Memory", 0) > 0 and math.isfinite(value)
            return {"Memory": int(value), "MemorySwap": int(value)} if known else None
        wanted = quota_us(value)
        if record.get("NanoCpus", 0) > 0:
            return None if wanted is None else {"NanoCpus": wanted * 1_000_000_000 // QUOTA_PERIOD_US}
        return {"CpuPeriod": QUOTA_PERIOD_US, "CpuQuota": -1 if wanted is None else wanted}

    def _former_body(
        self, quantity: str, value: float, record: Mapping[str, int]
    ) -> Mapping[str, Any] | None:
        if self.found.engine is None or self.found.engine.kind == "podman":
            return self._body(quantity, value)
        if quantity == CPU_REQUEST:
            return {"CpuShares": record.get("CpuShares") or SHARES_PER_CORE}
        if quantity == MEMORY_LIMIT:
            known = record.get("Memory", 0) > 0
            return {key: record[key] for key in ("Memory", "MemorySwap")} if known else None
        if record.get("NanoCpus", 0) > 0:
            return {"NanoCpus": record["NanoCpus"]}
        return {
            "CpuPeriod": record.get("CpuPeriod") or QUOTA_PERIOD_US,
            "CpuQuota": record.get("CpuQuota") or -1,
        }


def _podman(quantity: str, value: float) -> Mapping[str, Any]:
    """Return the LinuxResources of the OCI runtime specification, as libpod takes them."""
    if quantity == CPU_REQUEST:
        return {"cpu": {"shares": shares_of(value)}}
    if quantity == CPU_LIMIT:
        wanted = quota_us(value)
        return {"cpu": {"period": QUOTA_PERIOD_US, "quota": -1 if wanted is None else wanted}}
    size = -1 if math.isinf(value) else int(value)
    return {"memory": {"limit": size, "swap": size}}


def _quietly(ask: Callable[[], object]) -> bool:
    """Return whether the request was accepted. After a refusal, the control files can still be written."""
    try:
        ask()
    except BackendError:
        return False
    return True


def _cores(shares: int) -> float:
    return shares / SHARES_PER_CORE


def _cores_of_weight(held: int) -> float:
    span = (MOST_SHARES - LEAST_SHARES) / (_MOST_WEIGHT - 1)
    return (LEAST_SHARES + (held - 1) * span) / SHARES_PER_CORE
