"""Plain files that look like the mounted cgroup hierarchies, for code that cannot have real ones."""

from __future__ import annotations

from pathlib import Path

from testbed.containers.cgroup.drivers import V1, detect

CPU_STAT = (
    "usage_usec {usage}\nuser_usec 1\nsystem_usec 1\nnr_periods 7\nnr_throttled 3\nthrottled_usec 250\n"
)
MEMORY_STAT = (
    "anon 4096\nfile 8192\ninactive_anon 1\nactive_anon 2\ninactive_file {inactive}\nactive_file 4\n"
)


class FakeTree:
    """`proc` and `mount` below a folder, as `detect` reads them."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.mount = folder / "cgroup"
        self.proc.mkdir()
        self.mount.mkdir()
        self._lines: list[str] = []
        self._membership: list[str] = ["0::/\n"]
        self._write()

    def unified(self, controllers: str, name: str = "") -> Path:
        """Mounts cgroup v2 with these controllers."""
        point = self.mount / name
        point.mkdir(exist_ok=True)
        (point / "cgroup.controllers").write_text(f"{controllers}\n")
        (point / "cgroup.subtree_control").touch()
        self._lines.append(f"40 31 0:38 / {point} rw,relatime - cgroup2 cgroup2 rw\n")
        self._write()
        return point

    def hierarchy(self, controllers: str, own: str = "/", root: str = "/", name: str = "") -> Path:
        """Mounts a v1 hierarchy `root` of which is shown, with the caller in `own`."""
        point = self.mount / (name or controllers)
        point.mkdir()
        self._lines.append(f"32 31 0:29 {root} {point} rw,relatime - cgroup cgroup rw,{controllers}\n")
        self._membership.append(f"3:{controllers}:{own}\n")
        self._write()
        return point

    def group_v2(self, directory: Path, usage_us: int = 0, memory: int = 0, inactive: int = 0) -> None:
        """Fills a directory with the files that the kernel would have made in it."""
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("cgroup.procs", "cgroup.subtree_control", "memory.reclaim"):
            (directory / name).touch()
        (directory / "cpu.max").write_text("max 100000\n")
        for name in ("memory.max", "memory.high", "memory.swap.max"):
            (directory / name).write_text("max\n")
        (directory / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
        (directory / "cpu.stat").write_text(CPU_STAT.format(usage=usage_us))
        (directory / "memory.current").write_text(f"{memory}\n")
        (directory / "memory.stat").write_text(MEMORY_STAT.format(inactive=inactive))

    def group_v1(self, by_controller: dict[str, Path], limit: int, memory: int = 0) -> None:
        """Fills the directories of a v1 group, one per controller."""
        files = {
            "cpu": {
                "cpu.stat": CPU_STAT.format(usage=0),
                "cpu.cfs_quota_us": "-1",
                "cpu.cfs_period_us": "100000",
            },
            "cpuacct": {"cpuacct.usage": "0"},
            "memory": {
                "memory.usage_in_bytes": f"{memory}",
                "memory.stat": MEMORY_STAT.format(inactive=0),
                "memory.limit_in_bytes": f"{limit}",
                "memory.memsw.limit_in_bytes": f"{limit}",
                "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0",
                "cgroup.event_control": "",
            },
        }
        for controller, directory in by_controller.items():
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup.procs").touch()
            for name, text in files[controller].items():
                (directory / name).write_text(f"{text}\n")

    def driver_v1(self, group: str, limit: int) -> V1:
        """Two v1 hierarchies, cpu,cpuacct and memory, with a group in both; their driver."""
        cpu, memory = self.hierarchy("cpu,cpuacct"), self.hierarchy("memory")
        self.group_v1({"cpu": cpu / group, "cpuacct": cpu / group, "memory": memory / group}, limit)
        driver = detect(self.proc)
        assert isinstance(driver, V1)
        return driver

    def _write(self) -> None:
        (self.proc / "mountinfo").write_text("".join(self._lines))
        (self.proc / "cgroup").write_text("".join(self._membership))
