"""A node with security on, as its users run it: `penstock up` with a certificate and a password, and commands that sign in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kafka.secured import CERTIFICATE, KEY
from tests.e2e.running_node import RunningNode, penstock, running_node

PASSWORD = "open, sesame=1"


@pytest.fixture(scope="module", params=["plaintext", "tls"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A secured node, without and with TLS."""
    path = tmp_path_factory.mktemp("secured")
    (path / "password").write_text(PASSWORD + "\n")
    argv = ["--data-dir", str(path / "data"), "--sasl", "true", "--admin-password-file", str(path / "password")]
    if request.param == "tls":
        argv += ["--tls-cert", str(CERTIFICATE), "--tls-key", str(KEY)]
    with running_node(path / "log", argv) as running:
        running.ready["tls"] = request.param == "tls"
        yield running


def run(node: RunningNode, *argv: str, password: str | None = PASSWORD, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    variables = {"PENSTOCK_BOOTSTRAP": node.bootstrap}
    if password is not None:
        variables |= {"PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": password}
    if node.ready["tls"]:
        variables["PENSTOCK_TLS_CA"] = str(CERTIFICATE)
    return penstock(*argv, stdin=stdin, variables=variables)


def test_commands_sign_in(node: RunningNode) -> None:
    assert run(node, "topic", "create", "signed").returncode == 0
    assert run(node, "produce", "signed", stdin=b"one\ntwo\n").returncode == 0
    done = run(node, "consume", "signed")
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")


def test_a_wrong_password_is_told(node: RunningNode) -> None:
    done = run(node, "topic", "list", password="wrong")
    assert done.returncode == 1
    assert b"signing in as 'admin': authentication failed: wrong user name or password" in done.stderr


def test_whoever_does_not_sign_in_is_told_how(node: RunningNode) -> None:
    done = run(node, "topic", "list", password=None)
    assert done.returncode != 0
    assert b"--user" in done.stderr


def test_a_user_without_a_password_is_told_where_it_is_looked_for(node: RunningNode) -> None:
    done = penstock("topic", "list", "--bootstrap", node.bootstrap, "--user", "admin")
    assert done.returncode == 2
    assert b"PENSTOCK_PASSWORD" in done.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sasl", "true"], b"no password"),
        (["--tls-cert", str(KEY), "--tls-key", str(KEY)], b"cannot be used"),
        (["--tls-cert", "no-such-file", "--tls-key", str(KEY)], b"cannot be used"),
        (["--sasl", "true", "--admin-password-file", "no-such-file"], b"cannot be read"),
    ],
)
def test_a_node_that_cannot_be_secured_does_not_start(tmp_path: Path, argv: list[str], said: bytes) -> None:
    done = penstock("up", "--data-dir", str(tmp_path / "data"), "--kafka-port", "0", *argv)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "data").exists()
