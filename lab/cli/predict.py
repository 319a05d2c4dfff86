"""`twinbed predict train|evaluate|explain|step`: time and cost of a training job, learned from real runs.

For: the verbs' options and tables. Not for: training, judging or explaining (lab.cloud.run.predicting),
nor step times (twin.cloud.steptime).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli import config
from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, flag, names_in, option
from lab.cli.progress import Bar
from lab.runs.formats import Column, Record, Result
from twinbed.text import counted

if TYPE_CHECKING:
    from control.predictor.examples import Examples
    from lab.cloud.run.predicting import Judged

_JUDGED = (
    Column("by", "predicts"), Column("model", "model"), Column("left_out", "left out"),
    Column("rmse", "RMSE (h, $)", decimals=3), Column("r2", "R²", decimals=3),
    Column("median_error", "median error", percent=True, decimals=1),
    Column("auc", "AUC of the best", decimals=3), Column("found", "found", decimals=0),
    Column("best", "of", decimals=0), Column("false_positives", "picked wrongly", decimals=0),
    Column("good", "applications predicted well", decimals=0),
    Column("coverage", "in 90 % interval", percent=True, decimals=1),
)  # fmt: skip
_TRAINED = (
    Column("by", "predicts"),
    Column("model", "model"),
    Column("rows", "rows", decimals=0),
    Column("corrector", "corrector of known, of other applications"),
    Column("median_error_rows", "median error, rows left out", percent=True, decimals=1),
    Column("median_error_applications", "applications left out", percent=True, decimals=1),
    Column("file", "file"),
)
_IMPORTANCE = (
    Column("group", "group of features"),
    Column("time", "importance for time", decimals=3),
    Column("cost", "for cost", decimals=3),
)
_STEPS = (
    Column("gpus", "GPUs", decimals=0), Column("micro_batch", "micro-batch"),
    Column("accumulation", "accumulation", decimals=1), Column("step_s", "step", "s", 3),
    Column("low_s", "from", "s", 3), Column("high_s", "to", "s", 3),
    Column("tokens_per_s", "tokens", "1/s", 0), Column("regime", "regime"), Column("flags", "flags"),
)  # fmt: skip
_RING = (
    "The all-reduce of gradients is taken for a ring, whose latency grows with the number of GPUs. NCCL may "
    "take a tree on many nodes, whose latency grows with its logarithm: such a step may be shorter."
)
_ADDED = (Column("group", "because of"), Column("factor", "times", decimals=3))


app = typer.Typer(
    help="Predict time and cost of a training job on a cluster from real runs.", no_args_is_help=True
)

Runs = Annotated[
    Path | None,
    option("CSV", "Table of measured jobs, at prices of us-central1. Default: the one that ships.", "--runs"),
]
Jobs = Annotated[
    Path | None, option("FOLDER", "Folder of job files and local runs. Default: those that ship.", "--jobs")
]
Seed = Annotated[int, option("N", "Seed of all random numbers.", "--seed", min=0)]


@app.command("train")
def train(
    out: Annotated[Path, option("FOLDER", "Folder of the model files; it is made.")] = Path(),
    model: Annotated[str, option("NAME", "physical, or network, which takes far longer.")] = "physical",
    runs: Runs = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Train a model of cost and one of time on all measured runs, and write them with their cards."""
    from control.jobs import Objective
    from lab.cloud.run import model_file, predicting
    from lab.runs.files import check_place

    check_place(folder=out)
    table, rows = _examples(runs, jobs)
    records: list[Record] = []
    with Bar(len(Objective), wanted=not no_progress) as bar:
        for by in Objective:
            learned, card = predicting.train_with_card(model, rows, by, seed, table, bar)
            out.mkdir(exist_ok=True)
            path = out / f"{by}.twinbed-predictor"
            model_file.write(learned, card, path)
            bar(str(by), 1.0)
            shown = {column.key: card[column.key] for column in _TRAINED if column.key in card}
            records.append({**shown, "by": str(by), "file": str(path)})
    emit(Result(_TRAINED, tuple(records)), form)


@app.command("evaluate")
def evaluate(
    models: Annotated[
        str, option("NAME,…", "Models to judge; `network` takes minutes.")
    ] = "physical,linear,poisson,forest,xgboost,logistic,forest-classifier",
    runs: Runs = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Judge predictors on rows and on whole applications that they have not seen."""
    from lab.cloud.run import predicting

    names = names_in(models, "--models")
    predicting.check_models(names)
    _, rows = _examples(runs, jobs)
    with Bar(4 * len(names), wanted=not no_progress) as bar:
        judged = predicting.evaluate(rows, names, seed, bar)
    records = tuple(map(_record, judged))
    notes = (
        f"{counted(len(rows), 'run')} of {counted(len(rows.jobs), 'application')}. A model is judged on a "
        "fifth of the rows, or on all rows of one application, after training on the others. The best are an "
        "application's five cheapest or fastest configurations within 1.5 times the very best. The "
        "prediction for an application is good if it misses at most one of them and picks at most two "
        "others.",
    )
    emit(Result(_JUDGED, records, notes=notes), form)


def _record(judged: Judged) -> Record:
    from control.jobs import Objective

    unit = 3600.0 if judged.by is Objective.TIME else 1.0
    accuracy = judged.accuracy
    return {
        "by": str(judged.by), "model": judged.model, "left_out": str(judged.protocol),
        "rmse": None if accuracy is None else accuracy.rmse / unit,
        "r2": None if accuracy is None else accuracy.r2,
        "median_error": None if accuracy is None else accuracy.median_error, "auc": judged.auc,
        "found": judged.hits, "best": judged.best, "false_positives": judged.false_positives,
        "good": judged.good, "coverage": None if judged.coverage != judged.coverage else judged.coverage,
    }  # fmt: skip


@app.command("importance")
def importance(
    model: Annotated[str, option("NAME", "physical, or network, which takes far longer.")] = "physical",
    runs: Runs = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Show how much a model's accuracy depends on each group of features, on rows that it has not seen."""
    from control.jobs import Objective
    from lab.cloud.run import predicting

    _, rows = _examples(runs, jobs)
    with Bar(len(Objective), wanted=not no_progress) as bar:
        importances = {by: predicting.importance(model, rows, by, seed, bar) for by in Objective}
    losses = {by: dict(zip(own.group, own.loss.tolist(), strict=True)) for by, own in importances.items()}
    records = tuple(
        {"group": group, **{str(by): losses[by][group] for by in Objective}}
        for group in importances[Objective.TIME].group
    )
    notes = (
        "An importance is the growth of the median absolute log error if the group is shuffled among the "
        "rows of a fold; 0.01 is 1 % of the value.",
    )
    emit(Result(_IMPORTANCE, records, facts={"model": model}, notes=notes), form)


@app.command("explain")
def explain(
    model: Annotated[Path, argument("MODEL", "A file of `twinbed predict train`.")],
    job: Annotated[str, argument("JOB", "The job's file, or the name of a job that ships.")],
    kind: Annotated[str, option("NAME", "Instance type.", "--type")],
    workers: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 1,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Samples per worker and step. Default: the job's own.")
    ] = None,
    region: Annotated[
        str, flag("--region", "Region of the type's price.", envvar=config.VARIABLES["region"])
    ] = "us-central1",
    runs: Runs = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Predict time or cost of a job on a cluster, with an interval and what each group of features adds."""
    import math

    from control.jobs import Configuration, Objective
    from lab.ask import shipped
    from lab.cloud.input import data_set
    from lab.cloud.input.price_list import in_use
    from lab.cloud.run import model_file, predicting

    learned, card = model_file.read(model)
    with Bar(1, wanted=not no_progress, preparing="explaining"):
        table, background = _examples(runs, jobs)
        predicting.check_table(model, card, table)
        prices = in_use()
        asked = data_set.one(shipped.path_of("job", job), Configuration(kind, workers, batch), prices, region)
        explained = predicting.explain(learned, asked, background, seed)
    unit, scale = ("$", 1.0) if learned.by is Objective.COST else ("h", 3600.0)
    facts: Record = {
        "job": asked.jobs[0].name,
        "cluster": str(Configuration(kind, workers, batch)),
        "region": region,
        f"{learned.by} ({unit})": explained.value / scale,
        "from": explained.low / scale,
        "to": explained.high / scale,
        "like what was learned from": not explained.outside,
    }
    added = zip(explained.contributions.group, explained.contributions.log_factor.tolist(), strict=True)
    rows: list[Record] = [
        {"group": "a run like the others", "factor": math.exp(explained.contributions.base) / scale}
    ]
    rows += [{"group": group, "factor": math.exp(log)} for group, log in added]
    notes = [f"The product of all is the prediction in {unit}; from–to holds with 90 %."]
    if learned.by is Objective.COST and (bill := data_set.bill_in_words(prices, kind, region)):
        notes.append(bill)
    emit(Result(_ADDED, tuple(rows), facts=facts, notes=tuple(notes)), form)


@app.command("step")
def step(
    question: Annotated[Path, argument("FILE.yaml", "A model's configuration and its probes.")],
    others: Annotated[
        Path | None, option("CSV", "Measured runs of other jobs, with the columns of llm-foundry's table.")
    ] = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Predict the step time of a language model on any number of GPUs, from probes and runs of other jobs."""
    from lab.cloud.input import step_file
    from twin.cloud.steptime import StepTimes

    asked, probes = step_file.load(question)
    known = asked.take([]) if others is None else step_file.measured(others)
    answer = StepTimes(known).answer(probes, asked)
    flags = {"extrapolated": answer.extrapolated, "micro-batch predicted": answer.predicted}
    numbers = {
        "gpus": asked.gpus, "micro_batch": asked.micro_batch, "accumulation": asked.accumulation,
        "step_s": answer.step_s, "low_s": answer.low_s, "high_s": answer.high_s,
        "tokens_per_s": asked.tokens / answer.step_s,
    }  # fmt: skip
    records: list[Record] = [
        {key: float(values[row]) for key, values in numbers.items()}
        | {
            "regime": str(answer.regime[row]),
            "flags": ", ".join(name for name, holds in flags.items() if holds[row]),
        }
        for row in range(len(asked))
    ]
    unjudged = ", but were not judged for rows that are extrapolated" if answer.extrapolated.any() else ""
    notes: tuple[str, ...] = (
        f"From {counted(len(probes), 'probe')} and {counted(len(known), 'run')} of other jobs. The intervals "
        f"hold 90 %{unjudged}; without other runs they are a factor of two wide. Regime: a probe has the "
        "same configuration (constant), only others were probed (changes), or no probe shows this width "
        "(unprobed). Stalls by faults come on top.",
    )
    if ((asked.sharding == "none") & (asked.nodes > 1)).any():
        notes += (_RING,)
    emit(Result(_STEPS, tuple(records), notes=notes), form)


def _examples(runs: Path | None, jobs: Path | None) -> tuple[Path, Examples]:
    from lab.ask import shipped
    from lab.cloud.input import data_set
    from traces.catalogue.catalogue import load

    table = runs or data_set.TABLE
    return table, data_set.load(table, jobs or shipped.FOLDERS["job"], load())
