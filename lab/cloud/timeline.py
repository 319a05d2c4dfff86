"""The events of a market run as tracks of a timeline: what the job held and did, and what the zones offered.

For: `Kind.timeline`. Not for: writing a file (lab.runs.timeline).
"""

from __future__ import annotations

import numpy as np

from lab.runs.store import Run
from lab.runs.timeline import Counter, Moments, Spans, Tracks

_OFFERED = {"available": "machines", "spot_usd_h": "USD/h"}


def tracks(run: Run) -> Tracks:
    """Return the job's machines and states, the notices and losses, and each zone's machines and price."""
    held, losses = run.frame("spans"), run.frame("losses")
    place = held["place"].where(held["place"] != "", "no machine")
    job = Spans(
        "job",
        "machine",
        (place + ": " + held["state"]).tolist(),
        held["begin_s"].to_numpy(np.float64),
        held["end_s"].to_numpy(np.float64),
        {"reason": held["reason"].tolist()},
    )
    moments = Moments(
        "job", (losses["what"] + ": " + losses["zone"]).tolist(), losses["at_s"].to_numpy(np.float64)
    )
    zones = run.frame("market").groupby("zone", sort=False)
    return [
        job,
        moments,
        *(
            Counter(
                f"zone {zone}",
                column.replace("_", " "),
                unit,
                own["begin_s"].to_numpy(np.float64),
                own[column].to_numpy(np.float64),
            )
            for zone, own in zones
            for column, unit in _OFFERED.items()
        ),
    ]
