"""The explorer over the store that the running test has chosen: one server serves all journeys."""

import os
import runpy
from pathlib import Path

os.environ["TWINBED_STORE"] = Path(os.environ["STORE_NAMED_IN"]).read_text()
runpy.run_path(str(Path(__file__).parents[3] / "app.py"))
