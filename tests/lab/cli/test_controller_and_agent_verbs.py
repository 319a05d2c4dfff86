"""`twinbed controller` and `twinbed agent`: certificates, and what is refused before anything runs."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
from typing import cast

import pytest

from lab.cli.agent import rotate
from lab.cli.main import call
from testbed.containers.remote import certificates
from testbed.containers.remote.agent import Agent

SHOP = """\
applications:
  - name: shop
    cpu_limit_cores: 1
    memory_limit_bytes: 268435456
    containers: [{name: a, agent: h1, command: "true"}]
"""


@pytest.fixture
def pki(tmp_path, capsys):
    assert call(["controller", "init", "--pki", str(tmp_path / "pki")]) == 0
    assert "is good until" in capsys.readouterr().out
    return tmp_path / "pki"


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert call([str(each) for each in arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_certificate_goes_from_the_controller_to_the_host(pki, tmp_path, capsys):
    bundle, identity = tmp_path / "h1.pem", tmp_path / "etc" / "agent.pem"
    assert call(["controller", "enroll", "h1", "--pki", str(pki), "--out", str(bundle)]) == 0
    assert call(["agent", "enroll", str(bundle), "--identity", str(identity)]) == 0
    assert "agent h1, good until" in capsys.readouterr().out
    assert identity.read_bytes() == bundle.read_bytes()
    assert identity.stat().st_mode & 0o777 == 0o600
    run = ("agent", "run", "--identity", identity, "--controller")
    assert "is of agent h1" in refused(capsys, *run, "10.0.0.1:7117", "--name", "h2")
    assert "expected HOST:PORT" in refused(capsys, *run, "10.0.0.1")
    assert "--metrics x: expected PORT" in refused(capsys, *run, "10.0.0.1:7117", "--metrics", "x")


def test_enrolling_keeps_a_file_that_exists_and_issues_nothing(pki, tmp_path, capsys):
    bundle = tmp_path / "h1.pem"
    bundle.write_text("a key that nobody has elsewhere")
    enroll = ("controller", "enroll", "h1", "--pki", pki, "--out", bundle)
    said = refused(capsys, *enroll)
    assert f"{bundle}: exists already; name another file with --out, or use --replace" in said
    assert bundle.read_text() == "a key that nobody has elsewhere"
    assert "h1: no agent with a certificate of" in refused(capsys, "controller", "revoke", "h1", "--pki", pki)
    assert call([str(each) for each in (*enroll, "--replace")]) == 0
    assert certificates.load(bundle).name == "h1"


def test_the_controllers_own_certificate_is_no_agents(pki, capsys):
    assert "the controller's own" in refused(capsys, "agent", "enroll", pki / "server.pem")


def test_what_is_wrong_is_said_before_anything_runs(pki, tmp_path, capsys):
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    assert "--listen nowhere: expected HOST:PORT" in refused(
        capsys, "controller", "run", file, "--pki", pki, "--listen", "nowhere"
    )
    for wrong in ("x", "::1:9117", "host:", ":9117", "127.0.0.1:65536", "[::1]"):
        said = refused(capsys, "controller", "run", file, "--pki", pki, "--metrics", wrong)
        assert f"--metrics {wrong}: " in said
    with socket.create_server(("127.0.0.1", 0)) as used:
        place = f"127.0.0.1:{used.getsockname()[1]}"
        listen = ("--listen", "127.0.0.1:0")
        said = refused(capsys, "controller", "run", file, "--pki", pki, *listen, "--metrics", place)
        assert f"{place}: metrics cannot be served there (Address already in use)" in said
    assert "twinbed controller init" in refused(capsys, "controller", "run", file, "--pki", tmp_path / "none")
    file.write_text(SHOP.replace("name: a", "name: a;b"))
    assert "shop.yaml: applications.0.containers.0.name" in refused(
        capsys, "controller", "run", file, "--pki", pki
    )
    assert "enroll again" in refused(
        capsys, "agent", "run", "--controller", "h:1", "--identity", tmp_path / "no.pem"
    )


def test_an_agent_name_with_shell_characters_is_refused(pki, capsys):
    assert "agent name" in refused(capsys, "controller", "enroll", "a;b", "--pki", pki)


def test_revoking_needs_an_agent_that_was_enrolled(pki, tmp_path, capsys):
    enroll = ["controller", "enroll", "h1", "--pki", str(pki), "--out", str(tmp_path / "h1.pem")]
    assert call(enroll) == 0
    capsys.readouterr()
    assert call([*enroll, "--replace", "--format", "json"]) == 0
    serial = json.loads(capsys.readouterr().out)["rows"][0]["serial"]
    assert call(["controller", "revoke", serial, "--pki", str(pki)]) == 0
    assert f"revoked certificates of {serial}: 1" in capsys.readouterr().out
    assert call(["controller", "revoke", "h1", "--pki", str(pki)]) == 0
    assert "revoked certificates of h1: 2" in capsys.readouterr().out
    assert "h2: no agent with a certificate of" in refused(capsys, "controller", "revoke", "h2", "--pki", pki)


def test_a_running_controller_says_what_it_reloaded_on_sighup(pki, tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    enroll = ["controller", "enroll", "h1", "--pki", str(pki), "--out", str(tmp_path / "h1.pem")]
    assert call(enroll) == 0
    words = ("controller", "run", file, "--pki", pki, "--listen", "127.0.0.1:0")
    with subprocess.Popen(
        [sys.executable, "-m", "lab.cli.main", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert "listening on port" in said
            assert said.endswith(" of 127.0.0.1; policy escra; agents report every 0.1 s\n")
            assert call(["controller", "revoke", "h1", "--pki", str(pki)]) == 0
            process.send_signal(signal.SIGHUP)
            said = next(line for line in process.stderr if "reloaded" in line)
            assert "this controller's certificate is good until" in said
            assert said.endswith("revoked certificates: 1\n")
            (pki / "server.pem").write_bytes(b"damaged")
            process.send_signal(signal.SIGHUP)
            said = next(line for line in process.stderr if "reloaded" in line)
            assert "not reloaded: " in said
            assert said.endswith("; the former certificate stays in use\n")
        finally:
            process.terminate()
        assert process.wait() == 0


class _Rotated:
    def __init__(self) -> None:
        self.identities: list[certificates.Identity] = []

    def rotate(self, identity: certificates.Identity) -> None:
        self.identities.append(identity)


def test_an_agent_takes_a_good_certificate_of_its_own_name_only_on_sighup(pki, tmp_path, caplog):
    agent, path = _Rotated(), tmp_path / "agent.pem"
    mine, other = certificates.enroll(pki, "h1"), certificates.enroll(pki, "h2")
    for content in (mine.bundle(), other.bundle(), b"damaged"):
        certificates.write_private(path, content)
        rotate(cast(Agent, agent), "h1", path)
    assert agent.identities == [mine]
    refusals = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(refusals) == 2
    assert "is of agent h2; the former certificate stays in use" in refusals[0]
    assert "enroll again" in refusals[1]
