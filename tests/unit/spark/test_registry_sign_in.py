"""The sign-in of Spark's client to a registry elsewhere: what it sends, over TLS with a certificate of its own."""

from __future__ import annotations

import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.spark.registry_client import RegistryError, SchemaRegistry, registry_address

TLS = Path(__file__).parents[2] / "e2e" / "kafka" / "tls"
ANSWER = b'{"schema":"\\"int\\"","id":7}'


class Server(ThreadingHTTPServer):
    """A registry that has one schema for those who sign in, and notes how callers do."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.credentials: list[str | None] = []
        self.redirects_to: str | None = None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        credentials = self.headers.get("Authorization")
        self.server.credentials.append(credentials)
        if self.server.redirects_to is not None:
            self.send_response(302)
            self.send_header("Location", self.server.redirects_to + self.path)
            self.end_headers()
            return
        self.send_response(401 if credentials is None else 200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.mark.parametrize(
    ("user", "settings", "expected"),
    [
        ("", {"bearer.auth.token": "abc.def"}, "Bearer abc.def"),
        ("", {"basic.auth.user.info": "anna:secret"}, "Basic " + b64encode(b"anna:secret").decode()),
        ("anna:s%40cret@", {}, "Basic " + b64encode(b"anna:s@cret").decode()),
    ],
)
def test_credentials_are_sent_over_tls(server: Server, user: str, settings: dict[str, str], expected: str) -> None:
    url = f"https://{user}localhost:{server.server_address[1]}"
    registry = SchemaRegistry(registry_address(url, {**settings, "ssl.ca.location": str(TLS / "cert.pem")}))
    assert registry.latest("orders-value").id == 7
    assert server.credentials == [expected]


def test_a_registry_that_wants_a_sign_in_or_has_an_unknown_certificate_is_an_error_without_the_password(server: Server) -> None:
    url = f"https://localhost:{server.server_address[1]}"
    trusted = {"ssl.ca.location": str(TLS / "cert.pem")}
    with pytest.raises(RegistryError, match="401"):
        SchemaRegistry(registry_address(url, trusted)).latest("orders-value")
    with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED") as raised:
        SchemaRegistry(registry_address(url.replace("//", "//anna:secret@"), {})).latest("orders-value")
    assert "secret" not in str(raised.value)


def test_a_redirect_to_another_server_is_followed_without_the_sign_in(server: Server) -> None:
    with Server() as redirecting:
        redirecting.redirects_to = f"https://localhost:{server.server_address[1]}"
        threading.Thread(target=redirecting.serve_forever, daemon=True).start()
        url = f"https://anna:secret@localhost:{redirecting.server_address[1]}"
        with pytest.raises(RegistryError, match="401"):
            SchemaRegistry(registry_address(url, {"ssl.ca.location": str(TLS / "cert.pem")})).latest("orders-value")
        redirecting.shutdown()
    assert redirecting.credentials == ["Basic " + b64encode(b"anna:secret").decode()]
    assert server.credentials == [None]
