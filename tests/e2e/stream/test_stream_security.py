"""Streams of a node with authentication: no access without a user, nothing without a rule."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from penstock import minitoolstream as protos
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
        for user in ("ann", "bob"):
            _admin(running, "user", "set", user, "--new-password-file", str(path / "secret"))
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
    assert _ask(node, "POST", "/streams/orders", "stranger", "wrong", body=b"x") == (401, "not_signed_in")


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


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/streams/closed"),
        ("GET", "/streams/closed"),
        ("GET", "/streams/closed?follow=1"),
        ("GET", "/streams/closed/1"),
        ("GET", "/streams/closed/consumers"),
        ("GET", "/streams/closed/consumers/team"),
        ("POST", "/streams/closed/consumers/team/1"),
    ],
)
def test_every_http_request_needs_a_rule(node: RunningNode, method: str, path: str) -> None:
    assert _ask(node, "POST", "/streams/closed", "admin", PASSWORD, body=b"x")[0] == 200
    assert _ask(node, method, path, "bob", "secret", body=b"x" if method == "POST" else None) == (403, "not_allowed")


GRPC_REQUESTS = {
    "Publish": protos.PublishRequest(subject="closed"),
    "PublishBatch": protos.PublishBatchRequest(messages=[protos.PublishRequest(subject="closed")]),
    "Upload": protos.UploadRequest(header=protos.UploadHeader(subject="closed")),
    "Subscribe": protos.SubscribeRequest(subject="closed", durable_name="team"),
    "Fetch": protos.FetchRequest(subject="closed", durable_name="team"),
    "GetLastSequence": protos.GetLastSequenceRequest(subject="closed"),
    "AckMessage": protos.AckRequest(subject="closed", durable_name="team", sequence=1),
    "Read": protos.ReadRequest(subject="closed"),
    "Download": protos.DownloadRequest(sequence=1),
    "ConfigureConsumer": protos.ConfigureConsumerRequest(subject="closed", durable_name="team", ack_wait_s=5),
    "GetConsumers": protos.GetConsumersRequest(subject="closed"),
}
GRPC_SERVICES = protos.PublishRequest.DESCRIPTOR.file.services_by_name
GRPC_METHODS = [method for service in GRPC_SERVICES.values() for method in service.methods]


@pytest.mark.parametrize("method", GRPC_METHODS, ids=lambda method: method.name)
def test_every_grpc_method_needs_a_rule(node: RunningNode, method: MethodDescriptor) -> None:
    assert _ask(node, "POST", "/streams/closed", "admin", PASSWORD, body=b"x")[0] == 200
    response = getattr(protos, method.output_type.name)
    credentials = base64.b64encode(b"bob:secret").decode()
    with grpc.insecure_channel(f"127.0.0.1:{node.ready['listeners']['stream']['port']}") as channel:
        call = channel.stream_stream(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=response.FromString,
        )
        responses = call(iter([GRPC_REQUESTS[method.name]]), timeout=30, metadata=[("authorization", f"Basic {credentials}")])
        if method.name == "PublishBatch":  # which has a status for each message
            assert next(responses).results[0].status_code == grpc.StatusCode.PERMISSION_DENIED.value[0]
            return
        with pytest.raises(grpc.RpcError) as refused:
            next(responses)
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


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
    assert b"requires a user and a password" in refused.stderr
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
