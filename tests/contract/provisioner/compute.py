"""Compute Engine as `gcloud compute instances` shows it: answers in the documented form, kept in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence

from testbed.cloud.gcloud import Answer
from twinbed import BackendError

ZONE = "us-central1-a"
ZONE_URL = f"https://www.googleapis.com/compute/v1/projects/some-project/zones/{ZONE}"


class Compute:
    """A fake of Compute Engine. fault_at: number of the command that fails, from 0. late: whether it fails
    after its effect."""

    def __init__(self, fault_at: int | None = None, *, late: bool = False) -> None:
        self.fault_at, self.late = fault_at, late
        self.instances: dict[str, dict] = {}
        self.calls: list[Sequence[str]] = []
        self.now_s = 0.0
        self.console = ""

    def __call__(self, arguments: Sequence[str]) -> Answer:
        number = len(self.calls)
        self.calls.append(tuple(arguments))
        if number == self.fault_at and not self.late:
            raise BackendError("the network is down")
        answer = self._answer(arguments)
        if number == self.fault_at:
            raise BackendError("the network went down before the answer")
        return answer

    def _answer(self, arguments: Sequence[str]) -> Answer:
        assert arguments[:3] == ("gcloud", "compute", "instances")
        verb, *rest = arguments[3:]
        options = dict(word[2:].split("=", 1) for word in rest if word.startswith("--") and "=" in word)
        names = [word for word in rest if not word.startswith("--")]
        self._end_leases()
        if verb == "list":
            wanted = [part.removeprefix("labels.").split("=") for part in options["filter"].split(" AND ")]
            rows = [
                {"labels": row["labels"], "name": name, "status": row["status"], "zone": ZONE_URL}
                for name, row in self.instances.items()
                if all(row["labels"].get(label) == value for label, value in wanted)
            ]
            return Answer(0, json.dumps(rows, indent=2) + "\n", "")
        if verb == "create":
            assert options["instance-termination-action"] == "DELETE"
            (name,) = names
            if name in self.instances:
                return Answer(1, "", f"ERROR: (gcloud.compute.instances.create) {name} already exists")
            self.instances[name] = {
                "labels": dict(pair.split("=") for pair in options["labels"].split(",")),
                "status": "RUNNING",
                "until_s": self.now_s + float(options["max-run-duration"].removesuffix("s")),
            }
            return Answer(0, "", f"Created [{ZONE_URL}/instances/{name}].\n")
        if verb == "delete":
            for name in names:
                self.instances.pop(name, None)
            return Answer(0, "", "".join(f"Deleted [{ZONE_URL}/instances/{name}].\n" for name in names))
        assert verb == "get-serial-port-output"
        return Answer(0, self.console, "Specify --start=5000 in the next call.\n")

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def _end_leases(self) -> None:
        for name, row in list(self.instances.items()):
            if self.now_s >= row["until_s"]:
                del self.instances[name]
