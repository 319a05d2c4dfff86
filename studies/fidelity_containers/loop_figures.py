"""How well the control loop works on this kernel: 100 containers at 100 ms, and 1,000 OOM traps in a row.

For: the figures beside the validation. Not for: calibrating (lab.containers.calibrate), whose parts it uses
with more of everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lab.containers.calibrate import limits, loop
from lab.containers.real.backend import ON_TIME_S
from testbed.containers.cgroup.drivers import detect

CONTAINERS = 100
DURATION_S = 30.0
TRAPS = 1000
COMMAND = "python -m studies.fidelity_containers --loop"


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """on_time_share: of ticks served within ON_TIME_S; own_cores: of the loop's thread; *_p99_s: of ticks'
    lateness, quota writes and OOM grants (event read to limit written); kills: by the OOM killer."""

    on_time_share: float
    late_p99_s: float
    own_cores: float
    write_p99_s: float
    writes: int
    grant_p99_s: float
    traps: int
    kills: int


def measure() -> LoopFigures:
    """Takes about a minute. Raises BackendError where this machine cannot."""
    found = loop.run(CONTAINERS, DURATION_S)
    times = found.times
    grants = limits.oom_grants(detect(), limits.Extent(writes=0, grants=TRAPS, burn_s=0.0))
    return LoopFigures(
        on_time_share=float(np.mean(times.lateness_s <= ON_TIME_S)),
        late_p99_s=float(np.quantile(times.lateness_s, 0.99)),
        own_cores=times.own_cores,
        write_p99_s=float(np.quantile(times.write_s, 0.99)) if len(times.write_s) else float("nan"),
        writes=len(times.write_s),
        grant_p99_s=grants.grants.p99 or float("nan"),
        traps=grants.grants.n or 0,
        kills=grants.kills,
    )
