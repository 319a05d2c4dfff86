"""`twinbed apply`: applies an advice to running containers, watches them, and takes it back.

For: the verb's options and what it prints. Not for: the steps (lab.containers.apply).
"""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lab.cli.exporting import MetricsOption, exported, place
from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, flag, option
from twinbed import ScenarioError
from twinbed.text import counted

if TYPE_CHECKING:
    from lab.containers.apply.carrying import Applier, Back, Watched
    from lab.containers.apply.journal import Journal
    from lab.containers.apply.plan import ApplyPlan
    from lab.containers.apply.ports import Places

STATE = Path("/var/lib/twinbed")
_PROBLEM, _INTERRUPTED = 1, 128 + signal.SIGINT


def apply(
    advice: Annotated[Path | None, argument("ADVICE", "File that `twinbed advise` wrote.")] = None,
    yes: Annotated[bool, flag("--yes", "Carry the changes out. Without it they are only shown.")] = False,
    undo: Annotated[bool, flag("--undo", "Take back the latest apply that was not taken back yet.")] = False,
    canary: Annotated[
        str | None,
        option("SHARE%", "Change this share of the containers first, and the rest after their watch."),
    ] = None,
    watch: Annotated[
        str | None, option("TIME", "Time to watch after the canaries and after the rest, e.g. 10m.")
    ] = None,
    abort_if: Annotated[
        list[str] | None,
        option(
            "CONDITION",
            "Take everything back when a watched container meets it: 'throttled > 5%', 'oom > 0', "
            "'restarts > 1'. Repeatable.",
        ),
    ] = None,
    include_care: Annotated[bool, flag("--include-care", "Apply rows with the verdict `care`, too.")] = False,
    maps: Annotated[
        list[str] | None,
        option(
            "ROW=NAME",
            "Containers of a row: docker:NAME, podman:NAME, compose:PROJECT/SERVICE, pod:NAME, "
            "systemd:UNIT or a cgroup's path. Repeatable. Default: by name and labels.",
            "--map",
        ),
    ] = None,
    kubernetes: Annotated[
        bool,
        flag(
            "--kubernetes",
            "Resize the pods of the cluster of the current kubeconfig in place. Tested on an emulated "
            "API server only.",
        ),
    ] = False,
    state: Annotated[Path, option("FOLDER", "Audit file, and the data for taking back.")] = STATE,
    metrics: MetricsOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> int:
    """Apply an advice to running containers. By default, only show the changes and their reasons.

    Memory is never limited below the present use plus a margin. Ctrl-C, a condition that is met, or a refused
    write takes everything back. If an apply is killed, the next one takes its changes back.
    """
    import hashlib
    from dataclasses import replace

    from lab.cli.progress import Bar
    from lab.containers.advise import model
    from lab.containers.apply import conditions, matching, plan
    from lab.containers.apply.carrying import Source
    from lab.containers.apply.journal import Journal

    if undo:
        others = (advice, canary, watch, abort_if, maps, metrics)
        if yes or include_care or kubernetes or any(other is not None for other in others):
            raise ScenarioError("--undo: takes back the latest apply, and needs no other option but --state")
        return _undo(state, form, no_progress=no_progress)
    if advice is None:
        raise ScenarioError("which advice? give the file that twinbed advise --out wrote, or --undo")
    watched, where = _watched(canary, watch, abort_if or []), place(metrics)
    if where is not None and not yes:
        raise ScenarioError("--metrics: only with --yes; a dry run has nothing to watch")
    with closing(_places("kubernetes" if kubernetes else "host")) as places:
        told = model.read(advice)
        source = Source(str(advice.resolve()), hashlib.sha256(advice.read_bytes()).hexdigest())
        rows = plan.chosen(told, include_care=include_care)
        journal = Journal(state)
        if not yes:
            planned = plan.make(told, rows, matching.match(told, rows, places, maps or []), places)
            emit(plan.table(replace(planned, notes=(*planned.notes, *_dry(planned, journal)))), form)
            return _PROBLEM if planned.refused else 0
        with journal.held(), Bar(2, wanted=not no_progress, preparing="applying") as bar:
            applier = _applier(journal, state, places, bar)
            code = 0
            with exported(applier.figures.read, where):
                back = applier.recover()
                meant = matching.match(told, rows, places, maps or [])
                planned = plan.make(told, rows, meant, places)
                try:
                    why = applier.apply(planned, source, watched)
                except KeyboardInterrupt:
                    why, code = "interrupted", _INTERRUPTED
        notes = [*_told("An apply that was killed is taken back", back), *planned.notes]
        if why is not None:
            notes += [f"{applier.back.worded.capitalize()}: {why}", *applier.back.notes]
        elif planned.to_do:
            changes = counted(len(planned.to_do), "change")
            notes.append(f"In force: {changes}. To take back: twinbed apply --undo")
            notes += conditions.unjudged(watched.conditions, applier.figures.happened)
        done = "set" if why is None else "as it was"
        emit(plan.table(replace(planned, notes=tuple(notes)), done), form)
        unmatched = bool(rows) and not any(meant.values())
        return code or (_PROBLEM if why is not None or planned.refused or unmatched else 0)


def _undo(state: Path, form: Format, *, no_progress: bool) -> int:
    from lab.cli.progress import Bar
    from lab.containers.apply.journal import Journal
    from lab.runs.formats import Column, Result

    columns = (Column("advice", "advice"), Column("restored", "limits put back"))
    journal = Journal(state)
    if not state.is_dir() and state != STATE:
        raise ScenarioError(f"--state {state}: no such folder; name the one that the apply was given")
    with journal.held(), Bar(1, wanted=not no_progress, preparing="taking back") as bar:
        path = journal.newest()
        if path is None:
            emit(Result(columns, (), notes=(f"{state}: there is nothing to take back.",), nothing=""), form)
            return 0
        made = journal.load(path)
        with closing(_places(made.kind)) as places:
            back = _applier(journal, state, places, bar).take_back(path, made, "twinbed apply --undo")
    emit(Result(columns, ({"advice": made.advice, "restored": back.done},), notes=tuple(back.notes)), form)
    return 0


def _applier(journal: Journal, state: Path, places: Places, progress: object) -> Applier:
    from lab.containers.apply.carrying import Applier
    from testbed.containers.attach.audit import Audit

    return Applier(journal, Audit(state), places, progress)  # type: ignore[arg-type]


def _places(kind: str) -> Places:
    if kind == "kubernetes":
        from lab.connect.kubernetes import Cluster

        return Cluster()
    from lab.containers.apply.places import Host

    return Host()


def _watched(canary: str | None, watch: str | None, abort_if: list[str]) -> Watched:
    """Read the options together: a canary or a condition has no meaning without a watch."""
    from lab.ask.times import duration_s
    from lab.containers.apply.carrying import Watched
    from lab.containers.apply.conditions import parse

    conditions = tuple(map(parse, abort_if))
    if watch is None and (canary is not None or conditions):
        raise ScenarioError("--canary and --abort-if need --watch TIME, e.g. --watch 10m")
    share = 1.0
    if canary is not None:
        number = canary.removesuffix("%").strip()
        if not canary.endswith("%") or not number.replace(".", "", 1).isdecimal():
            raise ScenarioError(f"--canary {canary}: expected a percentage, e.g. 20%")
        share = float(number) / 100
        if not 0 < share <= 1:
            raise ScenarioError(f"--canary {canary}: expected more than 0 % and up to 100 %")
    return Watched(share, 0.0 if watch is None else duration_s(watch, "--watch"), conditions)


def _dry(planned: ApplyPlan, journal: Journal) -> list[str]:
    """Return the notes of a dry run: how to carry the plan out, and whether another apply is at work."""
    said = ["Nothing was changed. To carry it out: --yes" if planned.to_do else "There is nothing to change."]
    newest = journal.newest()
    if newest is not None and journal.load(newest).phase == "carrying":
        said.append(
            "An apply is at work or was killed; if it was killed, --yes and --undo take it back first."
        )
    return said


def _told(what: str, back: Back | None) -> list[str]:
    if back is None:
        return []
    are = "is as it was" if back.done == 1 else "are as they were"
    return [f"{what}: {counted(back.done, 'limit')} {are}", *back.notes]
