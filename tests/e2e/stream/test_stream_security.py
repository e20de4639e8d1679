"""Streams of a node that asks who its clients are: nobody without a name, nothing without a rule."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator

import grpc
import pytest

from tests.e2e.kafka.secured import CERTIFICATE, KEY
from tests.e2e.running_node import RunningNode, penstock, running_node

PASSWORD = "open, sesame=1"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path = tmp_path_factory.mktemp("secured-stream")
    (path / "password").write_text(PASSWORD)
    argv = ["--data-dir", str(path / "data"), "--sasl", "true", "--admin-password-file", str(path / "password")]
    argv += ["--stream-port", "0", "--stream-http-port", "0"]
    with running_node(path / "log", argv) as running:
        (path / "secret").write_text("secret")
        _admin(running, "user", "set", "ann", "--new-password-file", str(path / "secret"))
        yield running


def _admin(node: RunningNode, *argv: str, stdin: bytes = b"") -> None:
    variables = {"PENSTOCK_BOOTSTRAP": node.bootstrap, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}
    done = penstock(*argv, stdin=stdin, variables=variables)
    assert done.returncode == 0, done.stderr


def _ask(
    node: RunningNode, method: str, path: str, user: str = "", password: str = "", *, body: bytes | None = None
) -> tuple[int, str]:
    headers = {}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", node.ready["listeners"]["stream_http"]["port"], timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        raw = response.read()
    finally:
        connection.close()
    return response.status, json.loads(raw).get("error", "") if response.status >= 400 else raw.decode()


def test_nobody_comes_in_without_a_name(node: RunningNode) -> None:
    assert _ask(node, "POST", "/streams/orders", body=b"x") == (401, "not_signed_in")
    assert _ask(node, "POST", "/streams/orders", "admin", "wrong", body=b"x") == (401, "not_signed_in")
    assert _ask(node, "POST", "/streams/orders", "nobody", "wrong", body=b"x") == (401, "not_signed_in")


def test_rules_say_who_may_publish_and_read(node: RunningNode) -> None:
    assert _ask(node, "POST", "/streams/guarded", "admin", PASSWORD, body=b"x")[0] == 200
    assert _ask(node, "POST", "/streams/guarded", "ann", "secret", body=b"x") == (403, "not_allowed")
    assert _ask(node, "GET", "/streams/guarded", "ann", "secret") == (403, "not_allowed")
    _admin(node, "access", "allow", "ann", "read", "--topic", "guarded")
    assert _ask(node, "GET", "/streams/guarded", "ann", "secret")[0] == 200
    assert _ask(node, "GET", "/streams/guarded/1", "ann", "secret")[0] == 200
    assert _ask(node, "POST", "/streams/guarded", "ann", "secret", body=b"x") == (403, "not_allowed")
    assert _ask(node, "GET", "/streams/guarded/consumers/team", "ann", "secret") == (403, "not_allowed")
    assert _ask(node, "POST", "/streams/hidden", "admin", PASSWORD, body=b"x")[0] == 200
    assert _ask(node, "GET", "/streams/%3E", "ann", "secret") == (403, "not_allowed")
    assert "hidden" not in _ask(node, "GET", "/streams", "ann", "secret")[1]
    assert _ask(node, "GET", "/streams/guarded/2", "ann", "secret") == (403, "not_allowed")


def test_who_may_read_makes_no_subject_by_a_rule_of_delivery(node: RunningNode) -> None:
    for kind in ("--topic", "--group"):
        _admin(node, "access", "allow", "ann", "read", kind, "not-there")
    address = f"127.0.0.1:{node.ready['listeners']['stream']['port']}"
    signed_in = {"PENSTOCK_STREAM": address, "PENSTOCK_USER": "ann", "PENSTOCK_PASSWORD": "secret"}
    refused = penstock("stream", "configure", "not-there", "not-there", "--ack-wait", "5", variables=signed_in)
    assert refused.returncode == 1
    assert b"CREATE" in refused.stderr


def test_grpc_has_the_same_rules_and_the_command_signs_in(node: RunningNode) -> None:
    address = f"127.0.0.1:{node.ready['listeners']['stream']['port']}"
    variables = {"PENSTOCK_STREAM": address}
    refused = penstock("stream", "publish", "cli", stdin=b"x\n", variables=variables)
    assert refused.returncode == 1
    assert b"does not say who" in refused.stderr
    signed_in = {**variables, "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}
    assert penstock("stream", "publish", "cli", stdin=b"x\n", variables=signed_in).returncode == 0


def test_a_password_is_not_sent_in_the_clear() -> None:
    variables = {"PENSTOCK_STREAM": "queue.example.org:50051", "PENSTOCK_USER": "admin", "PENSTOCK_PASSWORD": PASSWORD}
    refused = penstock("stream", "fetch", "x", variables=variables)
    assert refused.returncode == 2
    assert b"without TLS" in refused.stderr


def test_listeners_speak_tls(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("tls-stream")
    argv = ["--data-dir", str(path / "data"), "--stream-port", "0", "--tls-cert", str(CERTIFICATE), "--tls-key", str(KEY)]
    with running_node(path / "log", argv) as running:
        address = f"localhost:{running.ready['listeners']['stream']['port']}"
        variables = {"PENSTOCK_STREAM": address, "PENSTOCK_TLS_CA": str(CERTIFICATE)}
        done = penstock("stream", "publish", "cli", stdin=b"x\n", variables=variables)
        assert done.returncode == 0, done.stderr
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(1)
