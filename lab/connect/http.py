"""Requests to an HTTP server of the user's, over TLS for https URLs, with one-line errors.

For: clients of other systems. Not for: the requests themselves (lab.connect.prometheus). Secrets come from
files or environment variables, are sent only to the host that the user named, and appear in no message.
Redirects are not followed and proxies are not used, so no other host receives them.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from twinbed import BackendError, ScenarioError
from twinbed.files import MIB, read_user_text
from twinbed.text import printable

PIECE_BYTES = MIB
"""Bytes of an answer that are read at once."""

MOST_ERROR_BYTES = 64 * 1024
"""Largest size of an error answer that is read, bytes."""

_MOST_SECRET_BYTES = 64 * 1024

_CUT = "the connection was cut in the middle of the answer; try again, or request less"

_CURES = {
    400: "is --selector right?",
    401: "the token or password is missing or wrong; give --token-file or --user",
    403: "the token or user may not read this; request the right to query",
    404: "no Prometheus API there; does the URL need a path, e.g. /prometheus or /select/0/prometheus?",
    405: "a server or proxy between forbids POST; use its own address",
    413: "the query is too long; take a narrower --selector",
    422: "the server refuses the query; take a longer --step or a shorter --since",
    429: "the server limits queries; try again later",
    502: "a proxy does not reach the server; try again",
    503: "the server is overloaded or starting; try again, or take a shorter --since",
    504: "the query took too long; take a shorter --since or a narrower --selector",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a server.

    url: its address, with the path of its API.
    authorization: value of the header, "" for none.
    ca_file: certificates that sign the server's; None for the system's.
    timeout_s: longest wait for a connection or the next bytes, s.
    """

    url: str
    authorization: str = field(default="", repr=False)
    ca_file: Path | None = None
    timeout_s: float = 60.0


def authorization(
    token_file: Path | None, token_env: str | None, user: str | None, password_file: Path | None
) -> str:
    """Return the header for a token or a user. Raises ScenarioError for options that do not fit together."""
    if sum(given is not None for given in (token_file, token_env, user)) > 1:
        raise ScenarioError("give only one of --token-file, --token-env and --user")
    if (user is None) != (password_file is None):
        raise ScenarioError("--user and --password-file go together")
    if user is not None and password_file is not None:
        pair = f"{user}:{_secret(read_user_text(password_file, _MOST_SECRET_BYTES), str(password_file))}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    if token_file is not None:
        return "Bearer " + _secret(read_user_text(token_file, _MOST_SECRET_BYTES), str(token_file))
    if token_env is not None:
        if token_env not in os.environ:
            raise ScenarioError(f"--token-env {token_env}: there is no such environment variable")
        return "Bearer " + _secret(os.environ[token_env], f"${token_env}")
    return ""


class Server:
    """One connection to a server, made again where the server closed it between two questions."""

    def __init__(self, access: Access) -> None:
        parts = urlsplit(_checked(access.url))
        self._access = access
        self._host, self._tls = parts.hostname or "", parts.scheme == "https"
        self._port, self._path = parts.port, parts.path.rstrip("/")
        self._where = f"{parts.scheme}://{parts.netloc}{self._path}"
        self._connection: http.client.HTTPConnection | None = None
        if self._tls:
            self._tls_context = _tls_context(access.ca_file)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def url(self, path: str) -> str:
        """Return the whole address of a path of the API."""
        return self._where + path

    def post(
        self,
        path: str,
        form: Mapping[str, str] | list[tuple[str, str]],
        feed: Callable[[bytes], None],
        *,
        get: bool = False,
    ) -> None:
        """Send a form and hand the answer on piece by piece. Raises BackendError that names URL and cure.

        get: the path takes GET alone, so the form goes into its query.
        """
        url, text = self.url(path), urlencode(form)
        try:
            response = (
                self._response("GET", f"{path}?{text}", "") if get else self._response("POST", path, text)
            )
            refusal = None if response.status == http.client.OK else self._refused(url, response)
            while refusal is None and (piece := response.read(PIECE_BYTES)):
                feed(piece)
            # `read` with a size does not raise an error if fewer bytes come than were announced.
            cut = bool(response.length)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise BackendError(f"{url}: {self._reason(error)}") from None
        except BaseException:
            self.close()
            raise
        if refusal is not None or cut:
            self.close()
            raise refusal or BackendError(f"{url}: {_CUT}")

    def _response(self, verb: str, path: str, body: str) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._access.authorization:
            headers["Authorization"] = self._access.authorization
        fresh = self._connection is None
        for last in (fresh, True):
            connection = self._connection or self._connected()
            try:
                connection.request(verb, self._path + path, body, headers)
                return connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # A server may close an idle connection, so a fresh connection must answer.
                self.close()
                if last:
                    raise
        raise AssertionError("unreachable")

    def _connected(self) -> http.client.HTTPConnection:
        timeout_s = self._access.timeout_s
        self._connection = (
            http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls_context)
            if self._tls
            else http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        )
        return self._connection

    def _refused(self, url: str, response: http.client.HTTPResponse) -> BackendError:
        if 300 <= response.status < 400:
            target = response.headers.get("Location", "elsewhere").partition("?")[0]
            return BackendError(f"{url}: leads to {target[:200]}; give the URL to which it leads")
        said = _said(response.read(MOST_ERROR_BYTES))
        cure = _CURES.get(response.status, "look into the server's log" if response.status >= 500 else "")
        reason = response.reason or http.client.responses.get(response.status, "")
        text = f"{url}: answered {response.status} {reason}{said}"
        return BackendError(f"{text}; {cure}" if cure else text)

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message}); give --ca-file with its issuer"
        if isinstance(error, ssl.SSLError):
            return f"no TLS ({error.reason or error}); does the server speak https on this port?"
        if isinstance(error, TimeoutError):
            return f"no answer within {self._access.timeout_s:g} s; raise --timeout or request less"
        if isinstance(error, http.client.RemoteDisconnected):
            return "closed the connection without an answer; is it an HTTP server, and does it want https?"
        if isinstance(error, http.client.IncompleteRead | ConnectionResetError | BrokenPipeError):
            return _CUT
        if isinstance(error, ConnectionRefusedError):
            return "no server listens there; is it running, and is the port right?"
        if isinstance(error, http.client.HTTPException):
            return f"does not speak HTTP ({type(error).__name__}); is the port right?"
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"cannot be reached ({what}); is the name right?"


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ScenarioError(f"{url}: not a URL ({error})") from None
    if parts.username is not None or parts.password is not None:
        raise ScenarioError(
            f"{parts.scheme}://{parts.hostname}: the URL holds a user or password, which others can see; "
            "give --user and --password-file"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ScenarioError(f"{url}: expected http://HOST:PORT or https://HOST:PORT")
    if parts.query or parts.fragment:
        raise ScenarioError(f"{url}: leave out the part after ? or #")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ScenarioError(f"{url!r}: a URL has no blanks and only ASCII characters")
    return url


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is None:
        return ssl.create_default_context()
    # Empty text would mean the system's certificates.
    text = read_user_text(ca_file, MIB) or "\n"
    try:
        return ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ScenarioError(f"{ca_file}: no certificates in PEM form ({error})") from None


def _secret(text: str, where: str) -> str:
    secret = text.strip()
    if not secret or not secret.isascii() or not secret.isprintable():
        raise ScenarioError(f"{where}: expected one line of ASCII text")
    return secret


def _said(body: bytes) -> str:
    """Return the error text of an answer in Prometheus' form; "" for an answer of another form."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    text = document.get("error") if isinstance(document, dict) else None
    return f" ({printable(text[:300])})" if isinstance(text, str) and text else ""
