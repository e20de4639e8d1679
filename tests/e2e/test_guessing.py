"""Passwords cannot be guessed through any port: wrong ones are counted together, then the user is locked out everywhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from penstock import minitoolstream as protos
from penstock.broker.sign_in import PAIR_FAILURES
from penstock.gateway.ydb.protos import auth
from penstock.kafka.protocol import keys
from penstock.kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.secured import authenticate
from tests.e2e.running_node import RunningNode, penstock, running_node

PASSWORD = "of the administrator"
LISTENERS = ("http", "yt", "ydb", "stream", "stream-http")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A secured node with every listener, and users ann and ben."""
    folder = tmp_path_factory.mktemp("guessing")
    (folder / "password").write_text(PASSWORD)
    argv = ["--data-dir", str(folder / "data"), "--sasl", "true", "--admin-password-file", str(folder / "password")]
    for name in LISTENERS:
        argv += [f"--{name}-port", "0"]
    with running_node(folder / "log", argv) as running:
        running.ready["log"] = folder / "log"
        for user in ("ann", "ben"):
            variables = {"PENSTOCK_BOOTSTRAP": running.bootstrap, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}
            assert penstock("user", "set", user, stdin=f"of {user}\n".encode(), variables=variables).returncode == 0
        yield running


def _port(node: RunningNode, name: str) -> int:
    return int(node.ready["listeners"][name]["port"])


def _http(port: int, path: str, authorization: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": authorization})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _console(node: RunningNode, user: str, password: str) -> str:
    status, text = _http(_port(node, "http"), "/api/v1/topics", _basic(user, password))
    return "ok" if status == 200 else text


def _stream_http(node: RunningNode, user: str, password: str) -> str:
    status, text = _http(_port(node, "stream_http"), "/streams", _basic(user, password))
    return "ok" if status == 200 else text


def _yt(node: RunningNode, user: str, password: str) -> str:
    status, text = _http(_port(node, "yt"), "/api/v4/get?path=//tmp/@id", f"OAuth {user}:{password}")
    return text if status == 401 else "ok"


def _stream(node: RunningNode, user: str, password: str) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{_port(node, 'stream')}") as channel:
        call = channel.unary_unary(f"/{protos.PACKAGE}.EgressService/GetLastSequence")
        try:
            call(
                protos.GetLastSequenceRequest(subject="x").SerializeToString(),
                timeout=60,
                metadata=[("authorization", _basic(user, password))],
            )
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED):
                return str(error.details())
        return "ok"


def _ydb(node: RunningNode, user: str, password: str) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{_port(node, 'ydb')}") as channel:
        call = channel.unary_unary("/Ydb.Auth.V1.AuthService/Login", response_deserializer=auth.LoginResponse.FromString)
        answer = call(auth.LoginRequest(user=user, password=password).SerializeToString(), timeout=60)
        return "ok" if not answer.operation.issues else str(answer.operation.issues[0].message)


def _plain(node: RunningNode, user: str, password: str) -> str:
    with RawClient(_port(node, "kafka")) as client:
        answer = authenticate(client, user, password)
        return "ok" if answer.error_code == 0 else str(answer.error_message)


def _scram(node: RunningNode, user: str, password: str) -> str:
    with RawClient(_port(node, "kafka")) as client:
        client.call(keys.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse)

        def step(text: str) -> SaslAuthenticateResponse:
            request = SaslAuthenticateRequest(auth_bytes=text.encode())
            return client.call(keys.SASL_AUTHENTICATE, 2, request, SaslAuthenticateResponse)

        bare = f"n={user},r=nonce"
        first = step(f"n,,{bare}")
        if first.error_code:
            return str(first.error_message)
        server = bytes(first.auth_bytes).decode()
        fields = dict(item.split("=", 1) for item in server.split(","))
        without_proof = f"c=biws,r={fields['r']}"

        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{bare},{server},{without_proof}".encode(), "sha256")
        proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True))).decode()
        last = step(f"{without_proof},p={proof}")
        return "ok" if last.error_code == 0 else str(last.error_message)


DOORS: dict[str, Callable[[RunningNode, str, str], str]] = {
    "console": _console,
    "stream http": _stream_http,
    "yt": _yt,
    "stream": _stream,
    "ydb": _ydb,
    "plain": _plain,
    "scram": _scram,
}


@pytest.mark.parametrize("door", DOORS)
def test_the_right_password_opens_every_port_and_an_unknown_name_reads_as_a_wrong_one(node: RunningNode, door: str) -> None:
    knock = DOORS[door]
    assert knock(node, "ben", "of ben") == "ok"
    wrong = knock(node, "ben", "guess")
    assert "wrong user name or password" in wrong
    assert knock(node, "no one", "guess") == wrong


def test_wrong_passwords_of_all_ports_lock_a_user_out_of_all_of_them(node: RunningNode) -> None:
    with ThreadPoolExecutor(PAIR_FAILURES) as pool:
        doors = list(DOORS.values())
        guesses = [pool.submit(doors[number % len(doors)], node, "ann", f"guess {number}") for number in range(PAIR_FAILURES + 4)]
        assert "ok" not in [guess.result() for guess in guesses]
    for name, knock in DOORS.items():
        knock(node, "ann", "guess")  # should the first second of the lockout be over, this makes it two
        assert "too many wrong passwords" in knock(node, "ann", "of ann"), name
        assert knock(node, "admin", PASSWORD) == "ok", name
    log = Path(node.ready["log"]).read_text()
    assert "wrong password for user 'ann'" in log
    assert "locked out" in log
    with urllib.request.urlopen(
        urllib.request.Request(
            f"http://127.0.0.1:{_port(node, 'http')}/metrics", headers={"Authorization": _basic("admin", PASSWORD)}
        ),
        timeout=60,
    ) as answer:
        metrics = answer.read().decode()
    for gateway in ("http", "stream", "yt", "ydb", "kafka"):
        assert f'penstock_sign_in_failures_total{{gateway="{gateway}",reason="wrong_password"}}' in metrics
        assert f'penstock_sign_in_failures_total{{gateway="{gateway}",reason="locked_out"}}' in metrics
    assert "penstock_locked_out_addresses 1" in metrics
