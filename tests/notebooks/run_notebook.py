"""Runs a notebook's code cells in order, as a kernel does, and prints what the last expression of each shows.

Use: python -m tests.notebooks.run_notebook FILE.ipynb. A cell that fails ends it with a traceback.
"""

import ast
import json
import sys
from pathlib import Path

names: dict[str, object] = {"__name__": "__main__"}
for cell in json.loads(Path(sys.argv[1]).read_text())["cells"]:
    if cell["cell_type"] != "code":
        continue
    body = ast.parse("".join(cell["source"])).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), cell["id"], "exec"), names)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
        print(f"<!-- {cell['id']} -->")
        print(shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown))
