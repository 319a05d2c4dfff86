"""T1: what a death costs a job that saves after every epoch. For: the definition. Source: table 3.1."""

from __future__ import annotations

from typing import Any

from studies.experiments.measures import Pick, change, mean
from studies.experiments.model import Change, Edit, Experiment, Figure

_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet101": ("ResNet101, data parallel", {"fabric.training.parameters": 44500000.0}),
    "gpt2_dp": (
        "GPT-2, data parallel",
        {"fabric.training.parameters": 124000000.0, "fabric.training.data": 4},
    ),
    "gpt2_pp": ("GPT-2, pipeline parallel", {"fabric.training.pipeline": 4}),
    "gpt2_pp_tp": ("GPT-2, pipeline and tensor parallel", {"fabric.training.tensor": 2}),
}


def _values(**sections: dict[str, float]) -> Edit:
    def edit(raw: dict[str, Any]) -> dict[str, Any]:
        fabrics = [each | {"values": sections} for each in raw["vary"]["fabric"]]
        return raw | {"vary": {"fabric": fabrics}}

    return edit


T1 = Experiment(
    name="T1",
    title="What a death costs a job that saves after every epoch",
    scenario="T1.yaml",
    method=(
        "The longest time in which a job with one path comes no further than it had been: from a silent "
        "fault just before the end of an epoch until that point is reached again. Time to save, to start "
        "and of an epoch are the source's own (table 3.1), so what the twin adds is how long the "
        "fault is not noticed, or not repaired (10 s). The source's figures are start and epoch added up, "
        "without either."
    ),
    figures=(
        *(
            Figure(key, f"Standstill: {title}", "s", 1, mean("stuck_s", Pick("none", where)))
            for key, (title, where) in _JOBS.items()
        ),
        *(
            Figure(
                f"{key}_thorn",
                f"Job time, THORN against none: {title}",
                "%",
                1,
                change("job_s", Pick("thorn", where), Pick("none", where)),
                detail=True,
            )
            for key, (title, where) in _JOBS.items()
        ),
    ),
    discussion=(
        "Not a test of the twin alone: start and epoch are inputs. Beyond them it adds the repair of the "
        "port, 10 s, which is longer than the 8.6 s in which queue pairs give up; so neither their timeout "
        "nor their retries move it, as long as they do give up. With NCCL's newer timeout (2^20) they "
        "outlive the repair, and the job does not die at all. The source's sum is the least that a death "
        "can cost.",
    ),
    sensitivity=(
        Change("ACK timeout 2^14", of_scenario=_values(queue_pair={"timeout": 14.0})),
        Change("ACK timeout 2^20", of_scenario=_values(queue_pair={"timeout": 20.0})),
        Change("3 retries", of_scenario=_values(queue_pair={"retry_count": 3.0})),
    ),
)
