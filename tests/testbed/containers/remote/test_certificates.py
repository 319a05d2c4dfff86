"""The controller's authority: files, names, expiry, and what damaged bundles are answered with."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.containers.remote import certificates
from twinbed import BackendError, ScenarioError, TwinbedError

USES = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
USES += ("key_cert_sign", "crl_sign")


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    certificates.init(tmp_path / "pki")
    return tmp_path / "pki"


def test_every_file_is_for_its_owner_only(pki: Path) -> None:
    assert stat.S_IMODE(pki.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in pki.iterdir()} == {0o600}
    assert {path.name for path in pki.iterdir()} == {"ca.pem", "ca.key", "server.pem"}


def test_no_certificate_but_the_authoritys_can_sign_others(pki: Path) -> None:
    own, issued = ((pki / name).read_bytes() for name in ("ca.pem", "server.pem"))
    agent = certificates.enroll(pki, "web-1").certificate
    for text, signs in ((own, True), (issued, False), (agent, False)):
        pem = text[text.index(b"-----BEGIN CERTIFICATE") :]
        extensions = x509.load_pem_x509_certificate(pem).extensions
        limits = extensions.get_extension_for_class(x509.BasicConstraints)
        assert (limits.value.ca, limits.critical) == (signs, True)
        assert limits.value.path_length == (0 if signs else None), "no authority below ours"
        usage = extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        allowed = {use for use in USES if getattr(usage.value, use)}
        assert allowed == ({"key_cert_sign", "crl_sign"} if signs else {"digital_signature"})


def test_a_certificate_is_for_its_own_side_of_a_connection_only(pki: Path) -> None:
    for made, purpose in (
        (certificates.enroll(pki, "web-1"), ExtendedKeyUsageOID.CLIENT_AUTH),
        (certificates.controller_identity(pki), ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        extensions = x509.load_pem_x509_certificate(made.certificate).extensions
        extended = extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert (extended.critical, list(extended.value)) == (True, [purpose])


def test_a_bundle_is_read_back_as_it_was_made(pki: Path, tmp_path: Path) -> None:
    made = certificates.enroll(pki, "web-1", days=10)
    certificates.write_private(tmp_path / "web.pem", made.bundle())
    assert certificates.load(tmp_path / "web.pem") == made
    assert timedelta(days=9) < made.expires - datetime.now(UTC) <= timedelta(days=10)


def test_renewing_the_controller_keeps_the_authority(pki: Path) -> None:
    agent, before = certificates.enroll(pki, "a"), certificates.controller_identity(pki)
    after = certificates.init(pki)
    assert after.authority == before.authority == agent.authority
    assert after.certificate != before.certificate


@pytest.mark.parametrize("name", ["", "../x", "a b", "a;rm", "$(id)", "x" * 64, "twinbed-controller"])
def test_names_that_an_agent_cannot_have_are_refused(pki: Path, name: str) -> None:
    with pytest.raises(ScenarioError, match="agent name"):
        certificates.enroll(pki, name)


def test_an_expired_bundle_names_the_file_the_day_and_the_cure(pki: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.pem"
    old = certificates.enroll(pki, "a", days=1, now=datetime(2026, 1, 1, tzinfo=UTC))
    certificates.write_private(path, old.bundle())
    with pytest.raises(BackendError, match=r"old\.pem: the certificate expired on 2026-01-02; enroll again"):
        certificates.load(path)


def test_a_bundle_of_another_authority_in_part_is_refused(pki: Path, tmp_path: Path) -> None:
    certificates.init(tmp_path / "other")
    mine, other = certificates.enroll(pki, "a"), certificates.enroll(tmp_path / "other", "a")
    for parts in (
        (mine.key, mine.certificate, other.authority),
        (other.key, mine.certificate, mine.authority),
        (mine.key, mine.certificate),
    ):
        (tmp_path / "mixed.pem").write_bytes(b"".join(parts))
        with pytest.raises(BackendError, match=r"mixed\.pem: .*enroll again"):
            certificates.load(tmp_path / "mixed.pem")


@given(content=st.binary(max_size=300))
@settings(max_examples=50)
def test_any_other_content_is_one_line_of_refusal(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\n" + content)
    with pytest.raises(TwinbedError) as refused:
        certificates.load(tmp_path / "x.pem")
    assert "\n" not in str(refused.value)


def test_without_an_authority_the_cure_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="twinbed controller init"):
        certificates.enroll(tmp_path, "a")
    with pytest.raises(BackendError, match="twinbed controller init"):
        certificates.controller_identity(tmp_path)


def test_an_authority_that_cannot_sign_is_named_with_the_cure(pki: Path) -> None:
    key = pki / "ca.key"
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for content, why in (
        (other, r"ca\.key: not a key of ours; restore"),
        (b"x", r"ca\.key is damaged; restore"),
    ):
        key.write_bytes(content)
        with pytest.raises(BackendError, match=why):
            certificates.enroll(pki, "a")
    key.unlink()
    key.mkdir()
    with pytest.raises(
        BackendError, match=r"ca\.key: cannot be read \(Is a directory\); run it as its owner"
    ):
        certificates.enroll(pki, "a")
    with pytest.raises(BackendError, match=r"server\.pem/pki: cannot be made \(Not a directory\)"):
        certificates.init(pki / "server.pem" / "pki")


def test_a_bundle_is_good_from_shortly_before_its_making_to_its_last_second(
    pki: Path, tmp_path: Path
) -> None:
    path, now = tmp_path / "a.pem", datetime.now(UTC).replace(microsecond=0)
    with pytest.raises(
        BackendError, match=r"a\.pem: cannot be read \(No such file or directory\); enroll again"
    ):
        certificates.load(path)
    certificates.write_private(path, certificates.enroll(pki, "a", days=1, now=now).bundle())
    second = timedelta(seconds=1)
    for good in (now - timedelta(minutes=5), now + timedelta(days=1)):
        assert certificates.load(path, now=good).name == "a"
    for bad, why in (
        (now - timedelta(minutes=5) - second, "is good from"),
        (now + timedelta(days=1) + second, "expired"),
    ):
        with pytest.raises(BackendError, match=f"the certificate {why}"):
            certificates.load(path, now=bad)
    most = 65_536
    path.write_bytes(path.read_bytes().ljust(most, b"\n"))
    assert certificates.load(path).name == "a"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(BackendError, match="larger than any bundle"):
        certificates.load(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "a.pem", list[int]()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    left = tmp_path / f".a.pem.{os.getpid()}.part"
    left.write_bytes(b"of a killed process")
    certificates.write_private(path, b"old")
    assert synced == [3]
    left.unlink()
    (tmp_path / "dir").mkdir()
    with pytest.raises(BackendError, match="cannot be written"):
        certificates.write_private(tmp_path / "dir", b"new")
    assert path.read_bytes() == b"old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.pem", "dir"]
