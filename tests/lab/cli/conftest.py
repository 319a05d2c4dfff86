"""A trace as users bring it."""

import pytest


@pytest.fixture
def csv_path(tmp_path):
    """Two containers over 30 s at 1 s, as a user would bring them."""
    lines = ["container,time_s,cpu_cores,memory_mib"]
    lines += [f"{name},{t},{0.2 + 0.6 * (t % 5 == 0)},{100 + t}" for name in ("web", "db") for t in range(30)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
