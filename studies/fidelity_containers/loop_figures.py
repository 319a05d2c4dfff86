"""How well the control loop works on this kernel: 100 containers at 100 ms, and 1,000 OOM traps in a row.

For: the figures on the page, and `python -m studies control-loop`. Not for: calibrating
(lab.containers.calibrate), whose parts this module uses for longer measurements.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from lab.containers.calibrate import limits, loop
from lab.containers.real.backend import ON_TIME_S
from studies.harness import Asked
from testbed.containers.cgroup.drivers import detect

CONTAINERS, DURATION_S, TRAPS = 100, 30.0, 1000


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """Measured figures of the control loop.

    on_time_share: share of ticks served within ON_TIME_S
    late_p99_s, write_p99_s, grant_p99_s: 99th percentile of ticks' lateness, of quota writes, and of OOM
    grants (event read to limit written)
    own_cores: CPU of the loop's thread
    writes, traps: numbers of quota writes and of traps; kills: kills by the OOM killer
    """

    on_time_share: float
    late_p99_s: float
    own_cores: float
    write_p99_s: float
    writes: int
    grant_p99_s: float
    traps: int
    kills: int


def measure() -> LoopFigures:
    """Measure the loop for about a minute. Raises BackendError where this machine cannot."""
    times = loop.run(CONTAINERS, DURATION_S).times
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


def make(_: Asked) -> int:
    """Measure the loop and print its figures."""
    for name, value in asdict(measure()).items():
        print(f"{name} = {value:.6g}")
    return 0
