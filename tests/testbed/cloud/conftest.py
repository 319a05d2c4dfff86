import pytest


@pytest.fixture(autouse=True)
def _needs_torch():
    pytest.importorskip("torch", reason="torch is not installed: pip install 'twinbed[cloud]'")
