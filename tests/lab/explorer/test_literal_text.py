"""Text from addresses, uploads and stored runs is shown as it is: it brings no link, image or markup."""

import ast
import re
from pathlib import Path

import pytest

from lab.explorer import html

FOLDER = Path(html.__file__).parent
SINKS = {"markdown", "caption", "error", "warning", "info", "success", "title", "header", "subheader",
         "toast", "progress", "download_button", "button", "expander", "popover", "status"}  # fmt: skip
NUMBER = re.compile(r"[^{}]*[dfge%]$")


def calls() -> list:
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name("_button"), args=[_, label, *_]):
                    pass
                case ast.Call(func=ast.Attribute(attr="progress"), args=[_, label, *_]):
                    pass
                case ast.Call(func=ast.Attribute(value=value, attr=name), args=[label, *_]):
                    if name not in SINKS or ast.unparse(value) in ("html", "running"):
                        continue
                case _:
                    continue
            found.append(pytest.param(label, id=f"{path.stem}-{node.lineno}"))
    return found


def literal(node: ast.expr) -> bool:
    """Whether the Markdown consists of our own words, of numbers, and of text that was made literal."""
    match node:
        case ast.Constant():
            return True
        case ast.JoinedStr(values=parts):
            return all(map(literal, parts))
        case ast.FormattedValue(value=value, format_spec=form):
            return literal(value) or (form is not None and bool(NUMBER.match(form.values[0].value)))
        case ast.IfExp(body=first, orelse=second) | ast.BinOp(left=first, right=second):
            return literal(first) and literal(second)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(), attr="join"), args=[ast.GeneratorExp(elt=part)]
        ):
            return literal(part)
        case ast.Call(func=ast.Name("counted"), args=[_, *words]):
            return all(map(literal, words))
        case ast.Call(func=function):
            return ast.unparse(function) in ("html.markdown", "len")
    return False


@pytest.mark.parametrize("label", calls())
def test_all_markdown_on_the_pages_is_our_own_or_made_literal(label):
    assert literal(label), ast.unparse(label)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[x](https://evil.example)", "\\[x\\]\\(https\\:\u2060//evil.example\\)"),
        ("![x](y)", "\\!\\[x\\]\\(y\\)"),
        ("www.evil.example", "www\u2060.evil.example"),
        ("a@evil.example", "a@\u2060evil.example"),
        ("&lt;b&gt;", "\\&lt;b\\&gt;"),
        (":red[x]", "\\:red\\[x\\]"),
        ("mine.csv: row 7", "mine.csv: row 7"),
        ("_a_ duration_s", "\\_a\\_ duration_s"),
        ("- a\n\n    b", "\\- a b"),
        ("1. a", "1\\. a"),
        ("===", "\\==="),
    ],
)
def test_what_markdown_would_interpret_is_escaped(text, shown):
    assert html.markdown(text) == shown
