"""A serverless function as a user writes it: its pods, the parts of an invocation, and what is asked of it.

For: the `serverless:` section of a scenario and the functions that come along by name. Not for: the
twin's workload made of it (lab.containers.input.services.functions), nor for pods
(twin.containers.serverless).

What the functions that come along cost is our assumption: the source says what they do, not how long it
takes. Each says how its figures were arrived at; none was fitted to the source's results.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from lab.ask.section import Section
from lab.containers.input.services.arrivals import ArrivalSpec

Distribution = Literal["fixed", "exponential", "lognormal"]


class Length(Section):
    """A time that varies."""

    mean_s: NonNegativeFloat = Field(description="Mean, seconds.")
    distribution: Distribution = Field(default="lognormal", description="How it varies.")
    cv: PositiveFloat = Field(
        default=0.5, le=100, description="Coefficient of variation (of lognormal only; exponential has 1)."
    )


class Part(Section):
    """A part of an invocation: CPU work of the pod, or a wait for something outside of it."""

    cpu_s: NonNegativeFloat | None = Field(default=None, description="Mean CPU time, seconds.")
    wait_s: NonNegativeFloat | None = Field(default=None, description="Mean wait without CPU, seconds.")
    distribution: Distribution = Field(default="lognormal", description="How it varies.")
    cv: PositiveFloat = Field(
        default=0.5, le=100, description="Coefficient of variation (of lognormal only; exponential has 1)."
    )
    what: str = Field(default="", description="What happens in it: a word for the reader.")

    @model_validator(mode="after")
    def _one(self) -> Part:
        if (self.cpu_s is None) == (self.wait_s is None):
            raise ValueError("give one of cpu_s, wait_s")
        return self


class Pod(Section):
    """What all pods of the function are."""

    cores: PositiveFloat = Field(
        default=1.0, le=4096, description="CPU that its owner asked for: what a policy takes for its peak."
    )
    memory_mib: PositiveInt = Field(default=256, le=1_000_000, description="Memory asked for, MiB; likewise.")
    threads: PositiveInt = Field(
        default=1, le=1024, description="Threads that CPU work is divided among, evenly."
    )
    start: Length = Field(
        default=Length(mean_s=2.0, cv=0.3),
        description="From the request for a pod to a running process; it has its limits meanwhile.",
    )
    initialise: Length = Field(
        default=Length(mean_s=0.5, cv=0.3), description="CPU work before the first invocation."
    )
    keep_alive_s: NonNegativeFloat = Field(default=600.0, description="How long an idle pod stays.")
    base_mib: NonNegativeFloat = Field(
        default=40.0, le=1e6, description="Memory of the started process, MiB."
    )
    retained_mib: NonNegativeFloat = Field(
        default=20.0, le=1e6, description="What its initialisation adds until the pod ends, MiB."
    )
    working_mib: NonNegativeFloat = Field(
        default=60.0, le=1e6, description="What each CPU part adds while it lasts, MiB."
    )


class Function(Section):
    """A function: its pods, and the parts of an invocation one after another."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")
    title: str = ""
    assumptions: str = Field(default="", description="Where the figures are from.")
    pod: Pod = Pod()
    parts: list[Part] = Field(min_length=1, max_length=100)


class BatchJob(Section):
    """A job: workers start together and take tasks from one list until all are done."""

    tasks: PositiveInt = Field(le=1_000_000)
    workers: PositiveInt = Field(le=100_000, description="Pods at once.")
    retries: NonNegativeInt = Field(
        default=1, le=100, description="How often a task is taken again whose pod was killed."
    )


_START = (
    "A pod starts in 2 s, as the calibration assumes of any container whose image is there, give or take "
    "30 %. Idle pods stay for 10 minutes, OpenWhisk's default. A process is single-threaded: what is beyond "
    "one core is of no use to it. "
)

IMAGE_PROCESS = Function.model_validate(
    {
        "name": "image_process",
        "title": "ImageProcess: reads an image, takes its metadata, makes a thumbnail, writes it",
        "assumptions": _START + "The image is a photograph of 12 megapixels (a JPEG of 4 MB). Decoding it, "
        "reading its metadata and shrinking it in full resolution took 0.25-0.32 s of CPU with Pillow on the "
        "machine that the default calibration describes; the source's CPU is of 2013 and about half as fast: "
        "0.5 s, and images differ (cv 0.5). Pillow held 58 MiB more meanwhile: 60 MiB. Starting Python, its "
        "web server and the libraries: 0.5 s, 40 + 20 MiB. The data base reads 4 MB from a hard disk and "
        "encodes them (0.2 s), and commits metadata and thumbnail to disk (0.1 s); disks queue, so cv is 1.",
        "parts": [
            {"wait_s": 0.2, "cv": 1.0, "what": "read the image from the data base"},
            {"cpu_s": 0.5, "cv": 0.5, "what": "metadata and thumbnail"},
            {"wait_s": 0.1, "cv": 1.0, "what": "write the thumbnail to the data base"},
        ],
    }
)

GRID_SEARCH = Function.model_validate(
    {
        "name": "grid_search",
        "title": "GridSearch: workers fit and score one set of hyperparameters after another",
        "assumptions": _START + "A task reads 50 MB of reviews from the one store, which is what fits a pod "
        "of 256 MiB besides the libraries, counts their words, fits a linear classifier and scores it. 115 "
        "workers that read at once share the store's 10 Gbit/s: 4.6 s each. Counting words took 0.13 s of "
        "CPU per MB in plain Python on the machine that the default calibration describes; the source's CPU "
        "is of 2013 and about half as fast: 13 s, and 2 s for the fit; hyperparameters decide how much there "
        "is to count and how many passes the fit takes (cv 0.5). The result is small (0.1 s). Importing "
        "NumPy, SciPy and pandas took 1.1 s of CPU and 65 MiB there; on the older CPU 2 s, with scikit-learn "
        "80 MiB. Text and vectors take 80 MiB.",
        "pod": {
            "initialise": {"mean_s": 2.0, "cv": 0.3},
            "retained_mib": 80.0,
            "working_mib": 80.0,
        },
        "parts": [
            {"wait_s": 4.6, "cv": 0.3, "what": "read the reviews from the store"},
            {"cpu_s": 15.0, "cv": 0.5, "what": "count words, fit and score"},
            {"wait_s": 0.1, "cv": 1.0, "what": "write the result to the store"},
        ],
    }
)

FUNCTIONS = {each.name: each for each in (IMAGE_PROCESS, GRID_SEARCH)}
"""The functions that come along, by name."""


def _named(function: Any) -> Any:
    """A function by its name; everything else as it is, for pydantic to judge."""
    if not isinstance(function, str):
        return function
    if function not in FUNCTIONS:
        close = difflib.get_close_matches(function, FUNCTIONS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(FUNCTIONS)}"
        raise ValueError(f"no function {function!r}; {hint}")
    return FUNCTIONS[function]


def _allow_text(schema: dict[str, Any]) -> None:
    """The short form of a function in the JSON schema."""
    whole = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "string", "enum": list(FUNCTIONS)}, whole]


class ServerlessInput(Section):
    """A function and what is asked of it: invocations every interval_s, by `arrivals`, or a batch."""

    function: Annotated[Function, BeforeValidator(_named)] = Field(
        description="A function, or the name of one that comes along.", json_schema_extra=_allow_text
    )
    interval_s: PositiveFloat | None = Field(default=None, description="From one invocation to the next.")
    arrivals: ArrivalSpec | None = Field(
        default=None,
        description="When it is invoked: the name of a shipped pattern, or a mapping with its `kind`.",
    )
    batch: BatchJob | None = Field(default=None, description="A job of many tasks instead of invocations.")
    duration_s: PositiveFloat = Field(
        default=600.0, le=1e6, description="Length of the run, seconds; a batch ends it when it is done."
    )
    max_pods: PositiveInt | None = Field(
        default=None, le=100_000, description="Pods at once; a batch's workers when left out."
    )
    hosts: PositiveInt = Field(default=3, le=10_000, description="Hosts that take turns in getting a pod.")
    phases: PositiveInt = Field(
        default=4, le=100, description="From how many offsets the pods' periods begin (1: all in step)."
    )

    @model_validator(mode="after")
    def _one_load(self) -> ServerlessInput:
        if [self.interval_s, self.arrivals, self.batch].count(None) != 2:
            raise ValueError("give one of interval_s, arrivals, batch")
        if self.max_pods is None and self.batch is None:
            raise ValueError("max_pods: say how many pods there may be at once")
        return self
