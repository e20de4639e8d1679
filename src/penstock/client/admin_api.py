"""The admin API of a node over HTTP, or what is below another prefix of it."""

from __future__ import annotations

import json
from base64 import b64encode
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from penstock.client.identity import Identity
from penstock.core.errors import ConfigError, PenstockError, UnavailableError

API_PREFIX: Final = "/api/v1"
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class AdminUnreachableError(UnavailableError):
    """The node does not answer, or is starting or stopping."""

    code = "admin_unreachable"


class AdminRefusedError(PenstockError):
    """The node answered with an error. `status` is HTTP's, `reason` the stable code of the error."""

    code = "admin_refused"

    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__(f"{message} ({reason})")
        self.status = status
        self.reason = reason


class AdminNames(NamedTuple):
    """What the user calls the settings that error messages refer to."""

    address: str = "http"
    sign_in: str = "user and password"
    tls: str = "tls_ca"


class AdminApi:
    """Calls the admin API of one node. Every call opens a connection, so that threads may share it."""

    def __init__(
        self,
        url: str,
        identity: Identity,
        timeout_s: float,
        prefix: str = API_PREFIX,
        names: AdminNames = AdminNames(),  # noqa: B008 - a tuple of texts
    ) -> None:
        self._prefix = prefix
        self._names = names
        scheme, self._host, self._port = _address(url)
        self._is_tls = scheme == "https"
        self._url = url
        self._identity = identity
        self._timeout_s = timeout_s
        if identity.user is not None and not self._is_tls and self._host not in LOOPBACK:
            raise ConfigError(f"the password of {identity.user!r} is not sent to {url} without TLS; use an https address")

    def call(self, method: str, path: str, body: object = None, timeout_s: float | None = None) -> Any:
        """Make one call, which may be given longer than others, and return the parsed answer."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._identity.user is not None:
            token = b64encode(f"{self._identity.user}:{self._identity.password}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        connection = self._connection(max(timeout_s or 0.0, self._timeout_s))
        try:
            connection.request(method, self._prefix + path, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            raw = answer.read()
        except (OSError, HTTPException) as error:
            raise AdminUnreachableError(
                f"{self._url} does not answer: {error}; check that the node runs and its http_port, or set {self._names.address}"
            ) from error
        finally:
            connection.close()
        if answer.status == HTTPStatus.UNAUTHORIZED and self._identity.user is None:
            message = f"{self._url} requires a user; set {self._names.sign_in}"
            raise AdminRefusedError(message, answer.status, "not_signed_in")
        return self._content(answer.status, raw)

    def _connection(self, timeout_s: float) -> HTTPConnection:
        if not self._is_tls:
            return HTTPConnection(self._host, self._port, timeout=timeout_s)
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._identity.tls_ca)
        except OSError as error:
            raise ConfigError(f"{self._names.tls}: {self._identity.tls_ca} cannot be used: {error}") from error
        return HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)

    def _content(self, status: int, raw: bytes) -> Any:
        try:
            content = json.loads(raw)
        except ValueError:
            message = f"{self._url} answers with {status}, but it is not a Penstock node; check {self._names.address}"
            raise AdminRefusedError(message, status, "not_penstock") from None
        if status < 400:
            return content
        error = content.get("error", content) if isinstance(content, dict) else {}
        message = error.get("message", "the request was refused")
        reason = str(error.get("code", error.get("error_code", status)))
        # A node that is starting or stopping will be reached in a moment.
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise AdminUnreachableError(f"{message} ({reason})")
        raise AdminRefusedError(message, status, reason)


def _address(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of the address of a node."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is not the address of a node: {error}") from error
    if parts.username is not None:
        raise ConfigError(
            f"the address of {host} has a user in it; write it as http://host:port, and give the user apart from it"
        )
    if scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise ConfigError(f"{url!r} is not the address of a node; write it as http://host:port or https://host:port")
    return scheme, host, port or (443 if scheme == "https" else 80)
