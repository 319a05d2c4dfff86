"""`python -m benchmarks [PART…]`: one JSON line per figure, as `benchmarks.figure` describes it.

Figures are medians of repeats. They are printed, never asserted: timings decide no test.
"""

import importlib
import json
import sys

PARTS = (
    "allocator", "controller", "fleet", "loop", "netlink", "predictor", "rdma", "reconciler", "requests",
    "spotdnn", "store", "twin", "whatif",
)  # fmt: skip

ON_REQUEST = ("cluster", "whatif_large")
"""Parts that take minutes, and are measured only when they are named."""


def main(parts: list[str]) -> int:
    unknown = [part for part in parts if part not in PARTS + ON_REQUEST]
    if unknown:
        print(
            f"benchmarks: no part {unknown[0]!r}; there are {', '.join(PARTS + ON_REQUEST)}", file=sys.stderr
        )
        return 2
    for part in parts or PARTS:
        for figure in importlib.import_module(f"benchmarks.bench_{part}").figures():
            print(json.dumps(figure, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
