"""The command `twinbed`: its verbs and its exit codes.

For: registering the verbs, and turning every failure into one line and an exit code: 0 done, 1 done with a
problem found, 2 could not be done, 3 a defect of twinbed, 130 interrupted. Not for: the work of any verb.
Verbs import heavy packages inside their functions.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from lab.cli import (
    advise,
    agent,
    apply,
    calibrate,
    compare,
    config,
    controller,
    explore,
    measurements,
    packages,
    policies,
    predict,
    prices,
    profile,
    recommend,
    record,
    reserve,
    run,
    runs,
    spot,
    stdin,
    sweep,
    testbed,
    traces,
    tune,
    validate,
    whatif,
)
from lab.cli.options import flag
from twinbed import InvariantError, TwinbedError, __version__
from twinbed.text import printable

OK, FAILED, DEFECT = 0, 2, 3
INTERRUPTED = 128 + signal.SIGINT

_LONGEST = 2_000
"""Most characters of a message; a file can have longer names."""

# Typer keeps its copy of click private; the base of its public exception is the usage error itself.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="twinbed",
    help="Ask 'what if' about the infrastructure under AI workloads: record a workload, replay it under "
    "other policies, compare.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("record")(record.record)
app.command("profile")(profile.profile)
app.add_typer(predict.app, name="predict")
app.command("recommend")(recommend.recommend)
app.command("spot")(spot.spot)
app.command("reserve")(reserve.reserve)
app.add_typer(prices.app, name="prices")
app.add_typer(measurements.app, name="measurements")
app.command("whatif")(whatif.whatif)
app.command("advise")(advise.advise)
app.command("run")(run.run)
app.command("apply")(apply.apply)
app.command("calibrate")(calibrate.calibrate)
app.command("validate")(validate.validate)
app.command("sweep")(sweep.sweep)
app.command("tune")(tune.tune)
app.command("compare")(compare.compare)
app.command("report")(compare.report)
app.add_typer(runs.app, name="runs")
app.add_typer(traces.app, name="traces")
app.add_typer(testbed.app, name="testbed")
app.add_typer(policies.app, name="policies")
app.add_typer(controller.app, name="controller")
app.add_typer(agent.app, name="agent")
app.command("explore")(explore.explore)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinbed {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool, flag("--version", "Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    del version
    path = config.file()
    if path is not None:
        context.default_map = config.defaults(context.command, config.read(path))


def call(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code. Standard error gets at most one line from us."""
    if os.environ.get("NO_COLOR"):
        from typer import rich_utils

        # rich disables colours by itself, but would still write bold and dim.
        rich_utils.COLOR_SYSTEM = None
    try:
        code = app(args=list(arguments), prog_name="twinbed", standalone_mode=False)
    except InvariantError as error:
        return _defect(error)
    except TwinbedError as error:
        return _fail(str(error))
    except _UsageError as error:
        # A group of verbs that was called without a verb has already printed its help.
        message = _usage(error, arguments)
        return _fail(message) if message else FAILED
    except ModuleNotFoundError as error:
        return _fail(packages.cure(error.name))
    except MemoryError:
        return _fail("out of memory; select a part of the trace (--container, --start, --end)")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        return _defect(error)
    if code == INTERRUPTED:
        sys.stderr.write("twinbed: interrupted\n")
    return code if isinstance(code, int) else OK


def main() -> NoReturn:
    """Run the console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal's encoding lacks is shown as an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
        # PYTHONUNBUFFERED: Python drops without an error what a full disk leaves of a text.
        if isinstance(raw := sys.stdout.buffer, io.RawIOBase):
            whole, encoding = io.BufferedWriter(raw), sys.stdout.encoding
            sys.stdout = io.TextIOWrapper(whole, encoding, "backslashreplace", line_buffering=True)
    for line in packages.strangers():
        sys.stderr.write(f"twinbed: {line}; install twinbed into an environment of its own (pipx, uv tool)\n")
    sys.exit(call(sys.argv[1:]))


def _usage(error: Exception, arguments: Sequence[str]) -> str:
    """Return the error of an option or argument and the help to read; "" if no arguments were given."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else _verb(arguments)
    message: str = getattr(error, "format_message", error.__str__)()
    message = message.replace("Value error, ", "").rstrip(".")
    return f"{message}; see {command} --help" if message else ""


def _verb(arguments: Sequence[str]) -> str:
    """Return the verb that was called, with the groups before it."""
    command: Any = typer.main.get_command(app)
    words = ["twinbed"]
    for word in arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        words.append(word)
    return " ".join(words)


def _fail(message: str) -> int:
    line = printable(" ".join(stdin.named(message).split()))
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
    sys.stderr.write(f"twinbed: {line}\n")
    return FAILED


def _defect(error: Exception) -> int:
    """Report an unexpected exception. The traceback is shown only on request."""
    if os.environ.get("TWINBED_TRACEBACK") == "1":
        traceback.print_exception(error)
    what = "".join(traceback.format_exception_only(error)).strip().removeprefix("twinbed.")
    _fail(f"a defect of twinbed: {what}; set TWINBED_TRACEBACK=1 to see where")
    return DEFECT


if __name__ == "__main__":
    main()
