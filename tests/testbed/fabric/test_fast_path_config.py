"""The configuration of a host's fast path, which a user may write by hand."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.fabric.fast_path import daemon
from testbed.fabric.fast_path.daemon import Config, main
from twinbed import ScenarioError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "fail-over-fast.md"


def of_the_page() -> dict[str, object]:
    text = PAGE.read_text().split("```json\n")[1].split("```")[0]
    table: dict[str, object] = json.loads(text)
    return table


def written(folder: Path, **changes: object) -> Path:
    path = folder / "fast_path.json"
    table = {**of_the_page(), **changes}
    path.write_text(json.dumps({key: value for key, value in table.items() if value is not None}))
    return path


def test_the_page_s_file_is_a_configuration(tmp_path: Path) -> None:
    config = Config.read(written(tmp_path))
    assert config.uplinks == (("tor0", "172.16.0.0", 0), ("tor1", "172.17.0.0", 1))
    assert config.plane == ""


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loopback": None}, "loopback: Field required"),
        ({"loopback": "10.255.0"}, "loopback: .*10.255.0"),
        ({"uplinks": [["tor0", "172.16.0.0"]]}, "uplinks.0.2: Field required"),
        ({"uplinks": []}, "uplinks: "),
        ({"others": ["10.255.0.2", "host2"]}, "others.1: .*host2"),
        ({"least_interval_s": 0}, "least_interval_s: "),
        ({"keyfile": "/etc/key"}, "keyfile: "),
    ],
)
def test_a_wrong_configuration_is_one_line_that_names_the_key(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    with pytest.raises(ScenarioError, match=rf"fast_path.json: {named}") as refused:
        Config.read(written(tmp_path, **changes))
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_used_ends_the_program_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fast_path.json"
    assert main(path) == 2
    path.write_text("no JSON")
    assert main(path) == 2
    assert [line[:10] for line in capsys.readouterr().err.splitlines()] == ["fast path:"] * 2


def test_a_device_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(written(tmp_path, uplinks=[["nosuch0", "172.16.0.0", 0]])) == 2
    assert capsys.readouterr().err == "fast path: uplinks: there is no device nosuch0 in this namespace\n"


@pytest.fixture
def handlers() -> Iterator[None]:
    """Put back this process's handlers of both signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("handlers")
def test_ctrl_c_ends_it_as_sigterm_does(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless:
        ended = False

        def __init__(self, *_: object) -> None:
            pass

        def run(self) -> None:
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt:
                pytest.fail("Ctrl-C is not handled")
            assert self.ended

    monkeypatch.setattr(daemon, "Daemon", Endless)
    monkeypatch.setattr(daemon, "_guard", lambda _: os.open(os.devnull, os.O_RDONLY))
    asked = written(
        tmp_path, uplinks=[["lo", "172.16.0.0", 0]], journal=str(tmp_path / "log"), real_time=False
    )
    assert main(asked) == 0
