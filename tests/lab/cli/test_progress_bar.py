import io
import threading
import time

from lab.cli import progress
from tests.patience import PATIENCE_S


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal_of(monkeypatch):
    """To be called in the test itself: between set-up and call pytest puts its own stderr back."""
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    return terminal


def wait_for(screen, text):
    deadline = time.monotonic() + PATIENCE_S
    while text not in screen.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return screen.getvalue()


def test_work_that_takes_long_says_so_before_its_first_run_begins(monkeypatch):
    screen = terminal_of(monkeypatch)
    with progress.Bar(2, wanted=True):
        assert "preparing" in wait_for(screen, "preparing")


def test_runs_are_named_once_they_report(monkeypatch):
    screen = terminal_of(monkeypatch)
    with progress.Bar(2, wanted=True) as bar:
        wait_for(screen, "preparing")
        bar("escra", 0.5)
        assert "escra (1 of 2)" in wait_for(screen, "escra (1 of 2)")


def test_work_that_is_done_at_once_shows_nothing(monkeypatch):
    screen = terminal_of(monkeypatch)
    # No machine is too busy for work that is done before this.
    monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
    before = set(threading.enumerate())
    with progress.Bar(1, wanted=True) as bar:
        bar("escra", 1.0)
        (timer,) = set(threading.enumerate()) - before
    timer.join(PATIENCE_S)
    assert not timer.is_alive()
    assert screen.getvalue() == ""


def test_nothing_is_shown_where_nobody_looks_or_it_is_not_wanted(monkeypatch):
    screen = terminal_of(monkeypatch)
    with progress.Bar(1, wanted=False):
        time.sleep(0.1)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress.Bar(1, wanted=True):
        time.sleep(0.1)
    assert screen.getvalue() == ""
