"""T2: 150 epochs of ResNet101 with faults. For: the definition. Source: section 3.5.2.1, figure 3.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.experiments.fabric_assumptions import ACK_2_14, ACK_2_20, EDGE
from studies.experiments.measures import Pick, change, mean, scaled
from studies.experiments.model import Experiment, Figure, Measure

_KIND, _AT = "fabric.faults.kind", "fabric.faults.at_s"
_SINGLE = {_KIND: "single", _AT: 7990}
_MANY = {_KIND: "round_robin"}
_QUIET = {_KIND: "none"}


def _slower(scheme: str, where: Mapping[str, Any]) -> Measure:
    return change("job_s", Pick(scheme, where), Pick("none", _QUIET))


T2 = Experiment(
    name="T2",
    title="150 epochs of ResNet101 with faults",
    scenario="T2.yaml",
    method=(
        "Data parallel on 4 hosts; an iteration is as long as the source's epoch of 80 s makes it with 98 of "
        "them (an input). Without a scheme a fault of the one path ends the job once its queue pairs give "
        "up; it starts again from its last save when the port is back. The single fault strikes 10 s before "
        "a save, the source's case. Many faults: a port down 20 s of every 40 s, port by port. A job is "
        "watched for twice the time that it needs. Accuracy is that of a small CNN on images made for it, "
        "really trained for 150 epochs (lab/fabric/record_curve.py), stretched to these epochs' times."
    ),
    figures=(
        Figure(
            "many_thorn", "Job time, THORN with many faults against none", "%", 2, _slower("thorn", _MANY)
        ),
        Figure(
            "single_stuck",
            "Standstill after a single fault, checkpoints alone",
            "s",
            0,
            mean("stuck_s", Pick("none", _SINGLE)),
        ),
        Figure(
            "many_kept",
            "Work done with many faults, checkpoints alone",
            "%",
            1,
            scaled(100, mean("kept_share", Pick("none", _MANY))),
        ),
        *(
            Figure(
                f"accuracy_{key}",
                f"Accuracy when the undisturbed job ends: {title}",
                "%",
                1,
                scaled(100, mean("accuracy", Pick(scheme, where))),
            )
            for key, title, scheme, where in (
                ("quiet", "no faults", "none", _QUIET),
                ("thorn", "THORN, many faults", "thorn", _MANY),
                ("single", "checkpoints, a single fault", "none", _SINGLE),
                ("many", "checkpoints, many faults", "none", _MANY),
            )
        ),
        Figure("quiet_thorn", "Job time, THORN without faults", "%", 2, _slower("thorn", _QUIET)),
        Figure("single_thorn", "Job time, THORN with a single fault", "%", 2, _slower("thorn", _SINGLE)),
        Figure(
            "many_software",
            "Job time, THORN in software with many faults",
            "%",
            2,
            _slower("thorn-software", _MANY),
        ),
        Figure("many_bond", "Job time, bond with many faults", "%", 2, _slower("bond", _MANY)),
        Figure("many_reroute", "Job time, rerouting with many faults", "%", 2, _slower("reroute", _MANY)),
        Figure("single_none", "Job time, checkpoints with a single fault", "%", 2, _slower("none", _SINGLE)),
    ),
    discussion=(
        "THORN keeps the job going, but not as unnoticeably as the source says: a fault every 40 s costs 2 "
        "%, nearly all of it the queue pairs' own timer. A lost window is sent again when the ACK timeout "
        "ends, 1.07 s at NCCL's default of the time, three times as long as the path was lost. With 2^14 "
        "(67 ms) it is 0.5 %, and with fast detection and no hold, too. So the figure hangs on a setting "
        "that the source does not give, not on BFD.",
        "Both lines for checkpoints come from the walk through deaths, with the source's times to save and "
        "start. They hold only while queue pairs give up before the port is back: with a timeout of 2^20 a "
        "queue pair outlives 20 s, and the job with it.",
    ),
    sensitivity=(*EDGE, ACK_2_14, ACK_2_20),
)
