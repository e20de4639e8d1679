"""A node with security on, as its users run it: `penstock up` with a certificate and a password, and commands that sign in."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.kafka.secured import CERTIFICATE, KEY
from tests.e2e.running_node import RunningNode, penstock, running_node

PASSWORD = "open, sesame=1"


@contextmanager
def secured_node(path: Path, *, tls: bool, more: Sequence[str] = ()) -> Iterator[RunningNode]:
    """A node with a password and, if asked for, a certificate and more options."""
    (path / "password").write_text(PASSWORD + "\n")
    argv = ["--data-dir", str(path / "data"), "--sasl", "true", "--admin-password-file", str(path / "password")]
    if tls:
        argv += ["--tls-cert", str(CERTIFICATE), "--tls-key", str(KEY)]
    with running_node(path / "log", [*argv, *more]) as running:
        running.ready["tls"] = tls
        yield running


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A secured node without TLS."""
    with secured_node(tmp_path_factory.mktemp("plain"), tls=False) as running:
        yield running


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A secured node with TLS."""
    with secured_node(tmp_path_factory.mktemp("encrypted"), tls=True) as running:
        yield running


@pytest.fixture(params=["plain", "encrypted"])
def node(request: pytest.FixtureRequest) -> RunningNode:
    """Each of them."""
    running: RunningNode = request.getfixturevalue(request.param)
    return running


def run(
    node: RunningNode, *argv: str, user: str = "admin", password: str | None = PASSWORD, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    variables = {"PENSTOCK_BOOTSTRAP": node.bootstrap}
    if password is not None:
        variables |= {"PENSTOCK_USER": user, "PENSTOCK_PASSWORD": password}
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
    assert b"does not let 'admin' in: authentication failed: wrong user name or password" in done.stderr


def test_whoever_does_not_sign_in_is_told_how(node: RunningNode) -> None:
    done = run(node, "topic", "list", password=None)
    assert done.returncode != 0
    assert b"--user" in done.stderr


def test_a_user_without_a_password_is_told_where_it_is_looked_for(plain: RunningNode) -> None:
    done = penstock("topic", "list", "--bootstrap", plain.bootstrap, "--user", "admin")
    assert done.returncode == 2
    assert b"PENSTOCK_PASSWORD" in done.stderr


def ok(node: RunningNode, *argv: str, stdin: bytes = b"") -> str:
    done = run(node, *argv, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_users_are_given_passwords_and_rights(plain: RunningNode) -> None:
    assert ok(plain, "user", "set", "anna", stdin=b"first\n") == "user anna has a new password\n"
    assert ok(plain, "user", "list") == "NAME\tMECHANISMS\nanna\tSCRAM-SHA-256, SCRAM-SHA-512\n"
    ok(plain, "topic", "create", "rights")
    denied = run(plain, "produce", "rights", user="anna", password="first", stdin=b"x\n")
    assert denied.returncode == 1
    assert b"TOPIC_AUTHORIZATION_FAILED" in denied.stderr
    assert b"penstock access allow" in denied.stderr
    told = ok(plain, "access", "allow", "anna", "write", "read", "--topic-prefix", "rig")
    assert told == "anna: write on topic rig… is allowed\nanna: read on topic rig… is allowed\n"
    assert run(plain, "produce", "rights", user="anna", password="first", stdin=b"x\n").returncode == 0
    ok(plain, "access", "deny", "*", "read", "--topic", "rights")
    rules = json.loads(ok(plain, "access", "list", "-o", "json"))
    assert sorted((rule["permission"], rule["user"], rule["operation"], rule["resource"]) for rule in rules) == [
        ("allow", "anna", "read", "topic rig…"),
        ("allow", "anna", "write", "topic rig…"),
        ("deny", "*", "read", "topic rights"),
    ]
    assert run(plain, "consume", "rights", user="anna", password="first").returncode == 1
    assert ok(plain, "access", "remove", "--of", "*", "--no-headers") == "deny\t*\tread\ttopic rights\t*\n"
    assert run(plain, "consume", "rights", user="anna", password="first").stdout == b"x\n"
    ok(plain, "access", "remove", "--of", "anna")
    ok(plain, "user", "remove", "anna")
    assert ok(plain, "user", "list", "--no-headers") == ""
    assert run(plain, "topic", "list", user="anna", password="first").returncode == 1


@pytest.mark.parametrize(
    ("argv", "stdin", "said"),
    [
        (["user", "set", "ben"], b"\n", b"the password is empty"),
        (["user", "set", "ben", "--new-password-file", "no-such-file"], b"", b"cannot be read"),
        (["user", "set", "admin"], b"x\n", b"set where the node is started"),
        (["user", "remove", "stranger"], b"", b"there is no user 'stranger'"),
        (["access", "allow", "ben", "read"], b"", b"required"),
        (["access", "allow", "ben", "read", "--cluster"], b"", b"nothing that is done with a CLUSTER"),
        (["access", "allow", "ben", "dance", "--topic", "t"], b"", b"invalid choice"),
        (["access", "remove"], b"", b"name the rules to delete"),
    ],
)
def test_what_cannot_be_done_to_users_and_rules_is_told(plain: RunningNode, argv: list[str], stdin: bytes, said: bytes) -> None:
    done = run(plain, *argv, stdin=stdin)
    assert done.returncode in (1, 2)
    assert said in done.stderr


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
