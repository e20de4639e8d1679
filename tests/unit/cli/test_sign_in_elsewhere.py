"""Passwords stay where they belong: a registry or Kafka beside the node is signed in to by options of its own."""

from __future__ import annotations

import io
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.cli import schema_actions
from penstock.cli.main import main
from penstock.client.identity import Identity


class OtherRegistry(ThreadingHTTPServer):
    """A registry without schemas that records how callers sign in."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.credentials: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers every request with an empty list."""

    def do_GET(self) -> None:
        assert isinstance(self.server, OtherRegistry)
        self.server.credentials.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[OtherRegistry]:
    with OtherRegistry() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def _current_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["profile", "create", "prod", "--bootstrap", "prod:9092", "--http", "https://prod:8080", "--user", "anna"]) == 0


@pytest.mark.parametrize("argv", [[], ["--profile", "prod"], ["--user", "bob"]])
def test_another_registry_is_not_sent_the_password_for_the_node(
    registry: OtherRegistry, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PASSWORD", "hidden")
    assert main(["schema", "list", "--registry", registry.url, *argv]) == 0
    assert registry.credentials == [None]


def test_another_registry_has_a_sign_in_of_its_own(registry: OtherRegistry, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("tree\n")
    argv = ["--registry", registry.url, "--registry-user", "carl", "--registry-password-file", str(file)]
    assert main(["schema", "list", *argv]) == 0
    assert registry.credentials == ["Basic " + b64encode(b"carl:tree").decode()]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Identity()),
        (["--kafka-user", "carl", "--kafka-tls-ca", "ca.pem"], Identity("carl", "tree", "ca.pem")),
    ],
)
def test_another_kafka_is_not_sent_the_password_for_the_node(
    registry: OtherRegistry, argv: list[str], expected: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities = []

    def connect(bootstrap: str, timeout_s: float, identity: Identity) -> None:
        identities.append((bootstrap, identity))
        raise SystemExit(0)

    monkeypatch.setattr(schema_actions, "CommandClient", connect)
    monkeypatch.setattr(schema_actions, "_export_lines", lambda _: [])
    monkeypatch.setenv("PENSTOCK_KAFKA_PASSWORD", "tree")
    with pytest.raises(SystemExit):
        main(["schema", "export", "--registry", registry.url, "--topic", "_schemas", "--kafka", "other:9092", *argv])
    assert identities == [("other:9092", expected)]


def test_kafka_without_a_topic_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "export", "--kafka", "other:9092"]) == 2
    assert "--kafka needs --topic" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--registry-user", "carl"], "need --registry"),
        (["--registry", "http://other", "--registry-password-file", "p"], "needs --registry-user"),
        (["--registry", "http://other", "--registry-user", "carl"], "set PENSTOCK_REGISTRY_PASSWORD or give"),
        (["--registry", "http://carl:tree@other"], "give --registry-user"),
        (["--http", "http://carl:tree@other"], "give the user apart from it"),
    ],
)
def test_mistakes_are_told_without_the_password(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "list", *argv]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "tree" not in told
