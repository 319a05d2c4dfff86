"""Ctrl-C, SIGTERM and SIGHUP: once they end the work, later they only hurry its clean-up."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from testbed.containers.interrupts import Interrupts


@pytest.fixture(autouse=True)
def _as_in_the_foreground() -> Iterator[None]:
    """Handle signals as a foreground process does. A shell's background processes and their children ignore
    Ctrl-C."""
    before = (
        signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGHUP, before[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_block_and_later_ones_hurry(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    hurried = []

    def work() -> None:
        with Interrupts() as interrupts:
            try:
                os.kill(os.getpid(), number)
            finally:
                hurried.append(interrupts.hurry)
                os.kill(os.getpid(), number)
                hurried.append(interrupts.hurry)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert hurried == [False, True]
    assert signal.getsignal(number) == before


def test_a_signal_in_a_callback_from_c_is_not_lost() -> None:
    called = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGTERM))
    before = sys.unraisablehook

    def work() -> None:
        with Interrupts():
            called()
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert sys.unraisablehook == before


def test_a_shielded_block_is_not_interrupted() -> None:
    with Interrupts() as interrupts:
        interrupts.shield()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.hurry


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not interrupts.hurry
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_hang_up_that_reads_settings_again_keeps_its_meaning() -> None:
    read = []
    before = signal.signal(signal.SIGHUP, lambda *_: read.append(1))
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupts.hurry
    finally:
        signal.signal(signal.SIGHUP, before)
    assert read == [1]


def test_outside_the_main_thread_nothing_is_touched() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def use() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [before]
