"""`twinbed controller` and `twinbed agent`: certificates, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cli.main import call

SHOP = """\
applications:
  - name: shop
    cpu_limit_cores: 1
    memory_limit_bytes: 268435456
    containers: [{name: a, agent: h1, command: "true"}]
"""


@pytest.fixture
def pki(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert call(["controller", "init", "--pki", str(tmp_path / "pki")]) == 0
    assert "is good until" in capsys.readouterr().out
    return tmp_path / "pki"


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert call([str(each) for each in arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_certificate_goes_from_the_controller_to_the_host(
    pki: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, identity = tmp_path / "h1.pem", tmp_path / "etc" / "agent.pem"
    assert call(["controller", "enroll", "h1", "--pki", str(pki), "--out", str(bundle)]) == 0
    assert call(["agent", "enroll", str(bundle), "--identity", str(identity)]) == 0
    assert "agent h1, good until" in capsys.readouterr().out
    assert identity.read_bytes() == bundle.read_bytes()
    assert identity.stat().st_mode & 0o777 == 0o600
    run = ("agent", "run", "--identity", identity, "--controller")
    assert "is of agent h1" in refused(capsys, *run, "10.0.0.1:7117", "--name", "h2")
    assert "expected HOST:PORT" in refused(capsys, *run, "10.0.0.1")


def test_the_controllers_own_certificate_is_no_agents(pki: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "the controller's own" in refused(capsys, "agent", "enroll", pki / "server.pem")


def test_what_is_wrong_is_said_before_anything_runs(
    pki: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    assert "--listen nowhere: expected HOST:PORT" in refused(
        capsys, "controller", "run", file, "--pki", pki, "--listen", "nowhere"
    )
    assert "--metrics" in refused(
        capsys, "controller", "run", file, "--pki", pki, "--listen", "127.0.0.1:0", "--metrics", "x"
    )
    assert "twinbed controller init" in refused(capsys, "controller", "run", file, "--pki", tmp_path / "none")
    file.write_text(SHOP.replace("name: a", "name: a;b"))
    assert "shop.yaml: applications.0.containers.0.name" in refused(
        capsys, "controller", "run", file, "--pki", pki
    )
    assert "enroll again" in refused(
        capsys, "agent", "run", "--controller", "h:1", "--identity", tmp_path / "no.pem"
    )


def test_an_agent_name_with_shell_characters_is_refused(
    pki: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "agent name" in refused(capsys, "controller", "enroll", "a;b", "--pki", pki)
