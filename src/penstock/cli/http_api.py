"""The admin API of a node, for commands that look after it, and its schema registry."""

from __future__ import annotations

import argparse
import json
from base64 import b64encode
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.cli.connection import ADDRESS_VARIABLES, Connection
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.sign_in import Identity

API_PREFIX: Final = "/api/v1"
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class HttpApi:
    """Calls the admin API of one node, or what is below another prefix."""

    def __init__(self, url: str, identity: Identity, timeout_s: float, prefix: str = API_PREFIX) -> None:
        self._prefix = prefix
        scheme, self._host, self._port = _address(url)
        self._is_tls = scheme == "https"
        self._url = url
        self._identity = identity
        self._timeout_s = timeout_s
        if identity.user is not None and not self._is_tls and self._host not in LOOPBACK:
            raise usage(f"the password of {identity.user!r} is not sent to {url} without TLS; use an https address")

    def get(self, path: str) -> Any:
        """What is there."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None, timeout_s: float | None = None) -> Any:
        """One call, which may be given longer than others; CommandError says why it did not succeed."""
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
            raise CommandError(
                f"{self._url} does not answer: {error}; check that the node runs and its http_port, or set --http or "
                f"{ADDRESS_VARIABLES['http']}",
                ExitCode.NO_CONNECTION,
            ) from error
        finally:
            connection.close()
        if answer.status == HTTPStatus.UNAUTHORIZED and self._identity.user is None:
            raise CommandError(
                f"{self._url} requires a user; set --user NAME and --password-file FILE (or PENSTOCK_USER and PENSTOCK_PASSWORD)"
            )
        return _content(self._url, answer.status, raw)

    def _connection(self, timeout_s: float) -> HTTPConnection:
        if not self._is_tls:
            return HTTPConnection(self._host, self._port, timeout=timeout_s)
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._identity.tls_ca)
        except OSError as error:
            raise usage(f"--tls-ca: {self._identity.tls_ca} cannot be used: {error}") from error
        return HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)


def make_api(arguments: argparse.Namespace) -> HttpApi:
    """The API that the options ask for; it connects when it is used."""
    connection = Connection(arguments)
    return HttpApi(connection.address("http"), connection.identity(), arguments.timeout)


def _address(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of the address of a node."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise usage(f"{url!r} is not the address of a node: {error}") from error
    if scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise usage(f"{url!r} is not the address of a node; write it as http://host:port or https://host:port")
    return scheme, host, port or (443 if scheme == "https" else 80)


def _content(url: str, status: int, raw: bytes) -> Any:
    try:
        content = json.loads(raw)
    except ValueError:
        raise CommandError(f"{url} answers with {status}, but it is not a Penstock node; check --http") from None
    if status >= 400:
        error = content.get("error", content) if isinstance(content, dict) else {}
        # A node that is starting or stopping will be reached in a moment.
        exit_code = ExitCode.NO_CONNECTION if status == HTTPStatus.SERVICE_UNAVAILABLE else ExitCode.FAILED
        raise CommandError(
            f"{error.get('message', 'the request was refused')} ({error.get('code', error.get('error_code', status))})", exit_code
        )
    return content
