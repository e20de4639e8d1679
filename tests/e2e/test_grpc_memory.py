"""What strangers send to gRPC listeners is not received, and answers do not repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from penstock import minitoolstream as protos
from penstock.gateway.ydb.protos import auth, query
from tests.e2e.running_node import RunningNode, running_node

BODY_BYTES = 60_000_000
CALLERS = 6
GROWTH_BYTES_MAX = 120 << 20
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@pytest.fixture(scope="module", params=["secured", "open"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that asks who its clients are, and one that does not."""
    path = tmp_path_factory.mktemp("node")
    argv = ["--data-dir", str(path / "data"), "--ydb-port", "0", "--stream-port", "0"]
    if request.param == "secured":
        (path / "password").write_text("secret")
        argv += ["--sasl", "true", "--admin-password-file", str(path / "password")]
    with running_node(path / "log", argv) as running:
        yield running


def _peak_bytes(node: RunningNode) -> int:
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def _call(node: RunningNode, listener: str, path: str, body: bytes) -> tuple[grpc.StatusCode, int]:
    """The status of a call, and how many bytes its answer has."""
    with grpc.insecure_channel(f"127.0.0.1:{node.ready['listeners'][listener]['port']}", options=UNLIMITED) as channel:
        try:
            answer = channel.unary_unary(path)(body, timeout=60)
        except grpc.RpcError as error:
            return error.code(), len(error.details() or "")
        return grpc.StatusCode.OK, len(answer)


@pytest.mark.parametrize("node", ["secured"], indirect=True)
def test_bodies_of_strangers_take_no_memory(node: RunningNode) -> None:
    # A field that no message has, so that the body is valid wherever it is decoded.
    body = b"\xfa\x7f" + b"\x80\x87\xce\x1c" + bytes(BODY_BYTES)
    before = _peak_bytes(node)
    paths = [
        ("ydb", "/Ydb.Topic.V1.TopicService/CreateTopic"),
        ("ydb", "/Ydb.Query.V1.QueryService/CommitTransaction"),
        ("stream", f"/{protos.PACKAGE}.IngressService/Publish"),
    ]
    with ThreadPoolExecutor(CALLERS) as pool:
        calls = [pool.submit(_call, node, *paths[number % len(paths)], body) for number in range(CALLERS)]
        assert {call.result()[0] for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
    assert _peak_bytes(node) - before < GROWTH_BYTES_MAX


def test_answers_do_not_repeat_what_was_sent(node: RunningNode) -> None:
    name = "x" * (BODY_BYTES // 10)
    found = [
        _call(
            node,
            "ydb",
            "/Ydb.Query.V1.QueryService/DeleteSession",
            query.DeleteSessionRequest(session_id=name).SerializeToString(),
        ),
        _call(
            node,
            "ydb",
            "/Ydb.Query.V1.QueryService/BeginTransaction",
            query.BeginTransactionRequest(session_id=name).SerializeToString(),
        ),
        _call(node, "ydb", "/Ydb.Auth.V1.AuthService/Login", auth.LoginRequest(user=name, password="x").SerializeToString()),
        _call(
            node, "stream", f"/{protos.PACKAGE}.IngressService/Publish", protos.PublishRequest(subject=name).SerializeToString()
        ),
        _call(
            node,
            "stream",
            f"/{protos.PACKAGE}.EgressService/Fetch",
            protos.FetchRequest(subject=name, durable_name=name).SerializeToString(),
        ),
    ]
    assert max(size for _, size in found) < 10_000, found
