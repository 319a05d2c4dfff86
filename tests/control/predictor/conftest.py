import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "control/predictor" in str(item.path):
            item.add_marker(pytest.mark.skipif(_missing() is not None, reason=_missing() or ""))


def _missing():
    import importlib.util

    for name in ("torch", "sklearn", "xgboost"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install 'twinbed[cloud]'"
    return None
