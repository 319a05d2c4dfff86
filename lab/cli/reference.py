"""Writes docs/reference/cli.md: every verb with its arguments and options, from the command line itself.

For: lab.cli.reference_pages. Not for: how to use the verbs (docs/tutorial.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from lab.cli.main import app

_COMMON = ("--store", "--format", "--no-progress", "--help")
_EXIT_CODES = """\
Standard output carries the result and nothing else; a failure is one line on standard error. Only the
commands that `record` and `profile` run print there, too, unless --logs keeps their output.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | done, and a problem was found: a recorded command failed, a stored run was changed, no cluster fits |
| 2 | could not be done: wrong usage, bad input, or the machine refused |
| 3 | a defect of twinbed; please report it, with what TWINBED_TRACEBACK=1 shows |
| 130 | interrupted by Ctrl-C; nothing half-written is left |
| 141 | the reader of standard output went away |
"""


def document() -> str:
    """Return the page as Markdown."""
    root: Any = typer.main.get_command(app)
    verbs = list(_verbs(root, "twinbed"))
    common = {
        name: option for _, verb in verbs for option in verb.params for name in option.opts if name in _COMMON
    }
    listed = "".join(_option(common[name]) for name in _COMMON if name in common)
    return (
        f"# Command line\n\n{_EXIT_CODES}\n## Options that verbs share\n\n"
        "Verbs that print a table have `--format`, and those that read or write runs have `--store`.\n\n"
        f"{_HEADER}{listed}" + "".join(_section(name, verb) for name, verb in verbs)
    )


_HEADER = "| option | meaning |\n|---|---|\n"


def _verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    if command.invoke_without_command:
        yield name, command
    for key, inner in command.commands.items():
        if not inner.hidden:
            yield from _verbs(inner, f"{name} {key}")


def _section(name: str, verb: Any) -> str:
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    options = [
        parameter
        for parameter in verb.params
        if parameter.param_type_name == "option" and not set(parameter.opts) & set(_COMMON)
    ]
    usage = " ".join([name, "[OPTIONS]", *(_metavar(argument) for argument in arguments)])
    paragraphs = "\n\n".join(" ".join(part.split()) for part in verb.help.strip().split("\n\n"))
    text = f"\n## {name}\n\n```\n{usage}\n```\n\n{paragraphs}\n"
    if arguments:
        rows = "".join(
            f"| `{_escaped(_metavar(argument))}` | {_cell(argument.help)} |\n" for argument in arguments
        )
        text += f"\n| argument | meaning |\n|---|---|\n{rows}"
    if options:
        text += "\n" + _HEADER + "".join(_option(option) for option in options)
    return text


def _metavar(argument: Any) -> str:
    plain = argument.metavar or str(argument.name).upper()
    return plain if argument.required or plain[0] == "[" else f"[{plain}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    metavar = _escaped(option.metavar or str(option.name).upper())
    value = "" if option.is_flag else f" `{metavar}`"
    default = option.default
    # A default of 0 equals False.
    untold = default is None or default is False or default == ""
    told = untold or not option.show_default or "Default:" in (option.help or "")
    said = "" if told else f" Default: `{default}`."
    return f"| {names}{value} | {_cell(option.help)}{said} |\n"


def _escaped(code: str) -> str:
    """Return code for a cell of a table, where a bar is escaped too, and a less-than sign is not."""
    return code.replace("|", "\\|")


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("<", "&lt;")
