"""A page's request that only takes time: `python -m tests.lab.explorer.waiting_work` is its child process."""

import json
import sys
import time
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Waiting:
    """Work that says that it goes on, and makes no runs. lasts_s: how long it takes, s."""

    module: ClassVar[str] = "tests.lab.explorer.waiting_work"
    lasts_s: float = 600.0
    folder: str = ""
    memory_bytes: int = 1 << 30

    def to_json(self) -> str:
        return json.dumps(self.lasts_s)


if __name__ == "__main__":
    lasts_s = json.loads(sys.stdin.readline())
    print(json.dumps({"label": "waiting", "fraction": 0.5}), flush=True)
    time.sleep(lasts_s)
    print(json.dumps({"runs": []}), flush=True)
