"""The controller's own small certificate authority, which authenticates controller and agents.

For: making the authority, the controller's certificate and one certificate per agent, and reading them with a
check of their dates. Not for: transport (service.py). Keys are ECDSA P-256. Files are written completely,
with mode 0600. An agent's certificate has the agent's name (common name) and is good for clients only, so
that no agent can pose as the controller. The controller is always called SERVER_NAME, so that trust does not
depend on an address. Source: RFC 5280.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twinbed import BackendError, ScenarioError

SERVER_NAME = "twinbed-controller"
"""The name in the controller's certificate, whatever its address."""

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
"""Validity of the authority and the certificates, days. Agents are enrolled again once a year."""

_CLOCK_SLACK = timedelta(minutes=5)
_MAX_FILE_BYTES = 65_536
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_AUTHORITY, _AUTHORITY_KEY, _SERVER = "ca.pem", "ca.key", "server.pem"


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its key, and the authority that both sides trust (PEM). name: common name. expires:
    end of its validity, UTC."""

    name: str
    authority: bytes
    certificate: bytes
    key: bytes
    expires: datetime

    def bundle(self) -> bytes:
        """Return authority, certificate and key as the content of one file, which `load` reads."""
        return self.key + self.certificate + self.authority


def init(folder: Path, *, days: int = CERTIFICATE_DAYS) -> Identity:
    """Make the authority and the controller's certificate in `folder`. An existing authority stays, and only
    the controller's certificate is renewed. days: validity, days. Raises BackendError."""
    began = datetime.now(UTC)
    _make_folder(folder)
    if not (folder / _AUTHORITY_KEY).exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, f"twinbed authority {os.urandom(4).hex()}")]
        )
        certificate = (
            _certificate(name, name, key.public_key(), began, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_private(folder / _AUTHORITY, _pem(certificate))
        write_private(folder / _AUTHORITY_KEY, _key_pem(key))
    identity = _issue(folder, SERVER_NAME, days, began, ExtendedKeyUsageOID.SERVER_AUTH)
    write_private(folder / _SERVER, identity.bundle())
    return identity


def enroll(folder: Path, name: str, *, days: int = CERTIFICATE_DAYS, now: datetime | None = None) -> Identity:
    """Return a certificate for the agent `name`, signed by the authority in `folder`. Raises ScenarioError
    for a name that an agent cannot have, BackendError if there is no authority."""
    if not _NAME.fullmatch(name) or name == SERVER_NAME:
        raise ScenarioError(f"agent name {name!r}: expected letters, digits, - and _ (at most 63)")
    return _issue(folder, name, days, now or datetime.now(UTC), ExtendedKeyUsageOID.CLIENT_AUTH)


def controller_identity(folder: Path) -> Identity:
    """Return the controller's own identity, from the folder that `init` made. Raises as `load` does."""
    path = folder / _SERVER
    if not path.exists():
        raise BackendError(f"{path}: missing; make it with: twinbed controller init --pki {folder}")
    return load(path, cure=f"renew it with: twinbed controller init --pki {folder}")


def load(
    path: Path, *, cure: str = "enroll again with: twinbed controller enroll", now: datetime | None = None
) -> Identity:
    """Read a bundle. Check that it is complete, in date, and signed by the authority in it. Raise
    BackendError that names the file, the problem and the cure."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BackendError(f"{path}: cannot be read ({error.strerror}); {cure}") from error
    try:
        return _parse(text, now or datetime.now(UTC))
    except (ValueError, TypeError, InvalidSignature) as error:
        reason = str(error) or "not signed by the authority in it"
        raise BackendError(f"{path}: {reason.splitlines()[0]}; {cure}") from None


def serial_of(certificate: bytes) -> int:
    """Return a certificate's serial number (PEM)."""
    return x509.load_pem_x509_certificate(certificate).serial_number


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, completely or not at all. Raises BackendError."""
    # A process id does not make a unique name: it is always the same in a container, and a killed writer may
    # have left a file.
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BackendError(f"{path}: cannot be written ({error.strerror}); choose another place") from error


def _parse(text: bytes, now: datetime) -> Identity:
    if len(text) > _MAX_FILE_BYTES:
        raise ValueError("larger than any bundle")
    key = serialization.load_pem_private_key(text, None)
    certificate, authority = x509.load_pem_x509_certificates(text)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("key and certificate do not belong together")
    certificate.verify_directly_issued_by(authority)
    for file in (certificate, authority):
        if now > file.not_valid_after_utc:
            raise ValueError(f"the certificate expired on {file.not_valid_after_utc:%Y-%m-%d}")
        if now < file.not_valid_before_utc:
            raise ValueError(
                f"the certificate is good from {file.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
            )
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Identity(
        str(name.value), _pem(authority), _pem(certificate), _key_pem(key), certificate.not_valid_after_utc
    )


def _issue(folder: Path, name: str, days: int, began: datetime, purpose: x509.ObjectIdentifier) -> Identity:
    try:
        authority = x509.load_pem_x509_certificate((folder / _AUTHORITY).read_bytes())
        signer = serialization.load_pem_private_key((folder / _AUTHORITY_KEY).read_bytes(), None)
    except FileNotFoundError as error:
        raise BackendError(
            f"{error.filename}: no authority is here; make one with: twinbed controller init --pki {folder}"
        ) from None
    except OSError as error:
        raise BackendError(
            f"{error.filename}: cannot be read ({error.strerror}); run it as its owner"
        ) from None
    except (ValueError, TypeError):
        raise BackendError(
            f"{folder}: {_AUTHORITY} or {_AUTHORITY_KEY} is damaged; restore them from a copy"
        ) from None
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise BackendError(f"{folder / _AUTHORITY_KEY}: not a key of ours; restore it from a copy")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _certificate(subject, authority.subject, key.public_key(), began, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .sign(signer, hashes.SHA256())
    )
    expires = certificate.not_valid_after_utc
    return Identity(name, _pem(authority), _pem(certificate), _key_pem(key), expires)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, began: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(began - _CLOCK_SLACK)
        .not_valid_after(began + timedelta(days=days))
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BackendError(f"{folder}: cannot be made ({error.strerror}); choose another --pki") from error
