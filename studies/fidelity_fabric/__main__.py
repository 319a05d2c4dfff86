"""`python -m studies.fidelity_fabric`: measures what the store lacks, and writes the results page.

For: `make results-fidelity-fabric`. Not for: the page's text (results.py). What was measured is kept, one
store per version of the code that it depends on, so that what was interrupted (Ctrl-C, at any time) goes on
where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lab.ask.calibration import Calibration
from lab.fabric.calibrate.measure import calibrated
from lab.fabric.calibrate.values import fabric
from lab.fabric.real import plan
from lab.fabric.real.settings import Road, setting
from lab.fabric.real.store import Store
from lab.fabric.validate.figures import measured, simulated
from lab.fabric.validate.judge import compared
from lab.runs.files import write_whole
from studies.fidelity_fabric import application_rows, side_by_side
from studies.fidelity_fabric.results import Found, document
from testbed.containers import machine
from testbed.containers.interrupts import Interrupts
from twinbed import BackendError, TwinbedError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "fidelity-fabric.md"
STORES = ROOT / "build" / "fidelity-fabric"
_CODE = ("control/fast_path", "testbed/fabric/fast_path", "testbed/fabric/probe.py", "testbed/fabric/frr.py")
"""What a failover depends on besides its setting."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 2 with one line where it cannot be done."""
    options = _options(arguments)
    try:
        store = Store(options.store or _store_of_this_code())
        until_s = time.monotonic() + options.minutes * 60.0
        code = 0 if options.page_only else _measured(options, store, until_s)
        if options.note is not None:
            store.note = options.note
        _write(options.page, store)
    except TwinbedError as error:
        sys.stderr.write(f"lab.fabric.real: {error}\n")
        return 2
    return code


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studies.fidelity_fabric", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no fault is begun after so long")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="SETTING[:FAULTS]", help="only these, side by side"
    )
    parser.add_argument("--name", default="measured", help="of the fabrics; others may be up under others")
    parser.add_argument("--store", type=Path, help="folder of what is measured; by default by the code")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written")
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    parser.add_argument("--note", help="a sentence on the page, from now on: what else the machine did")
    return parser.parse_args(arguments)


def _measured(options: argparse.Namespace, store: Store, until_s: float) -> int:
    """Round after round. Exit code: 130 when it was stopped, 2 when a fabric gave up."""
    rounds = [[_chosen(text) for text in options.only]] if options.only else plan.ROUNDS
    code = 0
    try:
        with Interrupts():
            for each in rounds:
                try:
                    side_by_side.measure(each, store, options.name, until_s, _say)
                except BackendError as error:
                    _say(f"lab.fabric.real: {error}")
                    code = 2
    except KeyboardInterrupt:
        _say("stopped; the same command goes on")
        code = 130
    return code


def _chosen(text: str) -> plan.Planned:
    key, _, faults = text.partition(":")
    chosen = setting(key)
    planned = next((each for each in plan.ALL if each.setting == chosen), plan.Planned(chosen))
    return replace(planned, faults=int(faults)) if faults else planned


def _write(page: Path, store: Store) -> None:
    settings = [each.setting for each in (*plan.ALL, *plan.WATCHED)]
    faults = {each: rows for each in settings if (rows := store.faults(each))}
    watched = {each: times for each in settings if (times := store.watched(each))}
    if not faults:
        raise BackendError("nothing is measured yet; run it as root, without --page-only")
    calibrations = _calibrations(store)
    others = {each.setting for each in plan.OTHERS}
    found = Found(
        faults=faults,
        watched=watched,
        calibrations=calibrations,
        compared=[
            one
            for each, rows in sorted(faults.items())
            if each in others and each.road in calibrations
            for one in compared(
                each.key,
                measured(each, rows),
                simulated(each, fabric(calibrations[each.road], {}, fast_path=True).control),
            )
        ],
        machine=machine.facts(),
        lacking=_lacking(store),
        note=store.note,
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = [document(found).rstrip(), *application_rows.section(calibrations=calibrations)]
    write_whole(page, lambda file: file.write(("\n\n".join(parts) + "\n").encode()))


def _lacking(store: Store) -> list[str]:
    faults = {each.setting.key: each.faults - len(store.faults(each.setting)) for each in plan.ALL}
    seconds = {each.setting.key: side_by_side.unwatched_s(each, store) for each in plan.WATCHED}
    return [
        *(f"{key} ({count} faults)" for key, count in faults.items() if count > 0),
        *(
            f"{key} ({rest_s / 60:.0f} minutes without a fault)"
            for key, rest_s in seconds.items()
            if rest_s > 1.0
        ),
    ]


def _calibrations(store: Store) -> dict[Road, Calibration]:
    """By road; a campaign that was interrupted may lack one."""
    found: dict[Road, Calibration] = {}
    for road in Road:
        with suppress(BackendError):
            found[road] = calibrated(store, road)
    return found


def _store_of_this_code() -> Path:
    """Stores of other versions are left alone."""
    digest = hashlib.sha256()
    for part in _CODE:
        for file in sorted((ROOT / part).rglob("*.py")) or [ROOT / part]:
            digest.update(file.read_bytes())
    return STORES / digest.hexdigest()[:10]


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
