"""Users' code: finds the class that a text names, and makes objects of that class.

For: policies, recommenders, schedulers, spot policies and trace readers that do not ship with twinbed. A text
is `FILE.py:CLASS[(KEY=VALUE, …)]`, or `NAME[(KEY=VALUE, …)]` for an entry point that an installed package
declares. Values are literals and are never evaluated. Not for: what such an object has to do, which the ports
in `control/` and docs/how-to/write-your-own-policy.md say.

`find` runs a file that is named. Programs that read text from strangers must therefore call it inside
`forbidden`, as the explorer does.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property, wraps
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from twinbed import InvariantError, ScenarioError, TwinbedError
from twinbed.files import MIB, read_user_bytes


class OwnCodeError(ScenarioError):
    """A user's code failed; the message names the file, the class, the method and the line."""


@dataclass(frozen=True, slots=True)
class Port:
    """The methods and attributes that a class of one sort must have.

    title: name of the sort in messages.
    methods: methods that are called and return something.
    values: attributes that are read.
    given: names of the arguments that the constructor gets first.
    optional: further methods that are called if there are any.
    base: the class in twinbed from which users derive theirs.
    """

    title: str
    methods: tuple[str, ...]
    values: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    base: str = ""


PORTS: Mapping[str, Port] = {
    "policies": Port(
        "policy",
        ("start", "on_join", "on_leave", "on_period", "on_oom", "on_reclaimed"),
        ("name", "given", "traps_oom", "reclaim"),
        optional=("learn", "on_service"),
        base="control.allocator.periodic.PeriodicPolicy",
    ),
    "schedulers": Port(
        "scheduler",
        ("on_round", "wake_s", "remarks"),
        ("at_events", "mixes_types"),
        given=("cluster", "seed"),
        base="control.scheduler.ports.Scheduler",
    ),
    "spot_policies": Port("spot policy", ("on_step",), given=("terms",), base="control.market.ports.Policy"),
    "recommenders": Port(
        "recommender", ("recommend", "searcher"), base="control.recommender.ports.Recommender"
    ),
    "readers": Port("trace reader", ("read",), ("description",)),
}
"""Every sort of code that users bring, by the entry point group `twinbed.GROUP`."""

Value = bool | int | float | str | None | tuple["Value", ...]
"""A value of an argument. Lists become tuples."""

_MOST_BYTES = MIB
_MOST_TEXT = 4000
_FILE = re.compile(r"(?P<place>.*\.py):(?P<name>[A-Za-z_]\w*)(?P<call>\(.*\))?", re.DOTALL)
_NAME = re.compile(r"(?P<name>[A-Za-z][\w.-]*)(?P<call>\(.*\))?", re.DOTALL)
_forbidden: ContextVar[str] = ContextVar("forbidden", default="")


@contextmanager
def forbidden(why: str) -> Iterator[None]:
    """Refuse all code of users within this context. why: ends the message."""
    token = _forbidden.set(why)
    try:
        yield
    finally:
        _forbidden.reset(token)


@dataclass(frozen=True, slots=True)
class Own:
    """A user's class with arguments, as plain data that can be sent to workers.

    group: key of PORTS. place: path of the file, "" for an entry point. name: name of the class or entry
    point.
    arguments: (key, value) pairs sorted by key. sha256: hash of the code, in hexadecimal digits.
    """

    group: str
    place: str
    name: str
    arguments: tuple[tuple[str, Value], ...]
    sha256: str

    @property
    def text(self) -> str:
        """The canonical text, which `find` reads back."""
        return f"{self.place}:{self._call}" if self.place else self._call

    @property
    def label(self) -> str:
        """The text with the file's name in place of its path, for tables and manifests."""
        return f"{Path(self.place).name}:{self._call}" if self.place else self._call

    @property
    def _call(self) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in self.arguments)
        return f"{self.name}({inside})" if inside else self.name

    @property
    def about(self) -> str:
        """The first line of the class's docstring."""
        return (inspect.getdoc(_source(self).kind) or "").partition("\n")[0]

    @property
    def parameters(self) -> dict[str, Value]:
        """Every parameter with its default, or with the argument that is given."""
        known = {key: _plain(spec.default, key) for key, spec in _source(self).parameters.items()}
        return known | dict(self.arguments)

    def with_argument(self, key: str, value: object) -> Own:
        """Return the class with one more argument. A text that is a literal becomes its value. Raises
        ScenarioError."""
        if isinstance(value, str):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                value = ast.literal_eval(value)
        return _checked(self, dict(self.arguments) | {key: value})

    def make(self, *given: object) -> Any:
        """Return a new object. Errors of its code become ScenarioErrors that name file, class and method.

        given: arguments that the port's constructor gets first. Raises ScenarioError if the code changed
        since `find`.
        """
        source = _source(self)
        if source.sha256 != self.sha256:
            raise ScenarioError(f"{self.label}: its code changed while it was used; start again")
        return _guarded(f"{self.label}: __init__", source.guarded)(*given, **dict(self.arguments))


def find(text: str, *groups: str) -> Own | None:
    """Return the class that a text names, None if it names neither a file nor an entry point.

    groups: sorts that are allowed, keys of PORTS. Raises ScenarioError that names the file and the class.
    """
    text = text.strip()
    match = _FILE.fullmatch(text) or _NAME.fullmatch(text)
    if match is None or len(text) > _MOST_TEXT:
        return None
    place, name = match.groupdict().get("place", ""), match["name"]
    if not place and not any(name in _entry_points(group) for group in groups):
        return None
    if _forbidden.get():
        raise ScenarioError(f"{name}: {_forbidden.get()}")
    group = _group_of_file(place, name, groups) if place else _group_of(name, groups)
    own = Own(group, place, name, (), "")
    return _checked(replace(own, sha256=_source(own).sha256), _arguments(match["call"] or "()", own.label))


def split(text: str) -> list[str]:
    """Return the parts of a text between commas that no bracket and no quote encloses, stripped."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += 0 if quote else (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def file_of(text: Any) -> str:
    """Return the path of the file with code that a text names, "" if it names none."""
    match = _FILE.fullmatch(text.strip()) if isinstance(text, str) else None
    return match["place"] if match else ""


def beside(text: Any, folder: Path) -> Any:
    """Return the text with its file in a folder, if the text names a file that is there."""
    place = file_of(text)
    return text.replace(place, str(folder / place), 1) if place and (folder / place).is_file() else text


def installed() -> list[Own]:
    """Return every entry point of all groups, by group and name. Raises ScenarioError for a broken one."""
    owns = [find(name, group) for group in PORTS for name in sorted(_entry_points(group))]
    return [own for own in owns if own is not None]


@dataclass(frozen=True)
class _Source:
    """A loaded class. kind: the class; sha256: hash of its code; label: its name in messages; port: the row
    of PORTS for its sort."""

    kind: type[Any]
    sha256: str
    label: str
    port: Port

    @cached_property
    def guarded(self) -> type[Any]:
        """The class whose methods raise ScenarioErrors."""
        methods = {
            name: _guarded(f"{self.label}: {name}", method, returns=name in self.port.methods)
            for name in (*self.port.methods, *self.port.optional)
            if inspect.isfunction(method := inspect.getattr_static(self.kind, name, None))
        }
        return type(self.kind.__name__, (self.kind,), {**methods, "__module__": self.kind.__module__})

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Parameters of the constructor in addition to those that the port gives."""
        specs = list(inspect.signature(self.kind).parameters.values())[len(self.port.given) :]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {spec.name: spec for spec in specs if spec.kind in named}


def _source(own: Own) -> _Source:
    port = PORTS[own.group]
    if own.place:
        module, sha256 = _module(own.place)
        return _class(getattr(module, own.name), sha256, f"{own.place}: {own.name}", port)
    entry = _entry_points(own.group)[own.name]
    label = f"{own.name} ({entry.value})"
    kind: Any = _guarded(label, entry.load)()
    is_class = inspect.isclass(kind)
    if not is_class:
        raise ScenarioError(f"{label}: is not a class")
    return _class(kind, _package_sha256(entry.module), label, port)


@cache
def _class(kind: Any, sha256: str, label: str, port: Port) -> _Source:
    missing = [name for name in (*port.methods, *port.values) if not hasattr(kind, name)]
    if missing:
        cure = f"; {port.base} has most of it" if port.base else ""
        raise ScenarioError(f"{label}: is no {port.title}, it lacks {', '.join(missing)}{cure}")
    abstract = sorted(getattr(kind, "__abstractmethods__", ()))
    if abstract:
        raise ScenarioError(f"{label}: does not define {', '.join(abstract)}")
    return _Source(kind, sha256, label, port)


def _group_of_file(place: str, name: str, groups: tuple[str, ...]) -> str:
    """Return the sort of a class in a file, told by its methods. Raises ScenarioError if it is of no sort."""
    module, _ = _module(place)
    kind = getattr(module, name, None)
    if not inspect.isclass(kind):
        classes = [key for key, value in vars(module).items() if inspect.isclass(value)]
        own = [key for key in classes if vars(module)[key].__module__ == module.__name__]
        raise ScenarioError(f"{place}: no class {name}; there {_are(get_close_matches(name, own) or own)}")
    fitting = [group for group in PORTS if _tells(group, kind)]
    allowed = [group for group in groups if group in fitting]
    if allowed:
        return allowed[0]
    wanted = " or ".join(PORTS[group].title for group in groups)
    if fitting:
        raise ScenarioError(f"{place}: {name}: is a {PORTS[fitting[0]].title}, and a {wanted} is needed here")
    lacks = ", ".join(PORTS[groups[0]].methods)
    raise ScenarioError(f"{place}: {name}: is no {wanted}: a {PORTS[groups[0]].title} has {lacks}")


def _tells(group: str, kind: type[Any]) -> bool:
    """Return whether a class has a method that only this sort has."""
    others = {name for key, port in PORTS.items() if key != group for name in port.methods}
    return any(hasattr(kind, name) for name in set(PORTS[group].methods) - others)


def _group_of(name: str, groups: tuple[str, ...]) -> str:
    return next(group for group in groups if name in _entry_points(group))


def _are(names: list[str]) -> str:
    return f"are {', '.join(names)}" if len(names) > 1 else f"is {names[0]}" if names else "are none"


def _arguments(call: str, label: str) -> dict[str, object]:
    """Return the literals of `(KEY=VALUE, …)`. Nothing is evaluated."""
    try:
        parsed = ast.parse(f"_{call}", mode="eval").body
        keys = [key.arg for key in parsed.keywords] if isinstance(parsed, ast.Call) else [None]
        if None in keys or len(set(keys)) < len(keys) or not isinstance(parsed, ast.Call) or parsed.args:
            raise ScenarioError(f"{label}: {call}: arguments are written KEY=VALUE, …, each key once")
        return {str(key.arg): ast.literal_eval(key.value) for key in parsed.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ScenarioError(
            f"{label}: {call}: arguments are literals: numbers, 'text', True, None, [1, 2]"
        ) from None


def _checked(own: Own, arguments: Mapping[str, object]) -> Own:
    """Return `own` with these arguments. Raises ScenarioError for an argument that the class does not
    take."""
    known = _source(own).parameters
    for key in arguments:
        if key not in known:
            close = ", ".join(get_close_matches(key, known) or known) or "it takes none"
            raise ScenarioError(f"{own.label}: no parameter {key!r}; known: {close}")
    for key, spec in known.items():
        if spec.default is spec.empty and key not in arguments:
            raise ScenarioError(f"{own.label}: {key} has no default; give {own.name}({key}=…)")
    plain = {key: _plain(arguments[key], f"{own.label}: {key}") for key in sorted(arguments)}
    return replace(own, arguments=tuple(plain.items()))


def _plain(value: object, label: str) -> Value:
    """Return a value that a manifest can hold, lists as tuples. Raises ScenarioError for others."""
    if isinstance(value, list | tuple):
        return tuple(_plain(part, label) for part in value)
    if value is None or value is inspect.Parameter.empty:
        return None
    if not isinstance(value, bool | int | float | str):
        raise ScenarioError(f"{label}: {value!r} is no number, text, True, False, None or list of them")
    return value


def _guarded(label: str, call: Callable[..., Any], *, returns: bool = False) -> Callable[..., Any]:
    """Return a function that calls `call` and turns its errors into ScenarioErrors of one line.

    returns: whether a result of None is an error, too.
    """

    @wraps(call, updated=())
    def guarded(*given: Any, **named: Any) -> Any:
        try:
            result = call(*given, **named)
        except TwinbedError as error:
            if isinstance(error, InvariantError):
                raise OwnCodeError(f"{label}: {error}") from error
            raise
        except Exception as error:
            raise OwnCodeError(f"{label}: {_one_line(error)}") from error
        if returns and result is None:
            raise OwnCodeError(f"{label}: returned None")
        return result

    return guarded


def _one_line(error: Exception) -> str:
    """Return the error's type and text with the line where user code was last at work."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    ours = str(Path(__file__).parent)
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not frame.filename.startswith(ours)]
    where = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + where


def _module(place: str) -> tuple[ModuleType, str]:
    content = read_user_bytes(place, _MOST_BYTES)
    return _executed(place, content), hashlib.sha256(content).hexdigest()


@cache
def _executed(place: str, content: bytes) -> ModuleType:
    """Return the module made from a file's content, registered so that pickles find its classes."""
    module = ModuleType(f"twinbed_own_{hashlib.sha256(place.encode() + content).hexdigest()[:16]}")
    module.__file__ = place
    sys.modules[module.__name__] = module
    try:
        exec(_guarded(place, compile)(content, place, "exec"), vars(module))
    except TwinbedError:
        raise
    except Exception as error:
        raise OwnCodeError(f"{place}: {_one_line(error)}") from error
    return module


@cache
def _entry_points(group: str) -> Mapping[str, metadata.EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=f"twinbed.{group}")}


@cache
def _package_sha256(module: str) -> str:
    """Return the SHA-256 of all source files of a module's top-level package, with their names."""
    spec = find_spec(module.partition(".")[0])
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    if not files and spec and spec.origin:
        files = [Path(spec.origin)]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
