"""Streams over plain HTTP and from the command line, against a real node."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from tests.e2e.running_node import PENSTOCK, RunningNode, environment, penstock, running_node
from tests.e2e.stream.stream_client import StreamClient
from tests.ports import free_port

PATIENCE_S = 30


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def lines(self) -> list[Any]:
        """Its lines as JSON."""
        return [json.loads(line) for line in self.body.splitlines()]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    base = tmp_path_factory.mktemp("stream-http")
    argv = ["--stream-port", "0", "--stream-http-port", "0", "--data-dir", str(base / "data")]
    with running_node(base / "log", argv) as running:
        yield running


def ask(node: RunningNode, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
    """One request."""
    connection = http.client.HTTPConnection("127.0.0.1", node.ready["listeners"]["stream_http"]["port"], timeout=PATIENCE_S)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def run(node: RunningNode, *argv: str, stdin: bytes = b"") -> str:
    """`penstock stream …` that must succeed; what it printed."""
    address = f"127.0.0.1:{node.ready['listeners']['stream']['port']}"
    done = penstock("stream", *argv, stdin=stdin, variables={"PENSTOCK_STREAM": address})
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout.decode()


def test_a_message_is_published_read_and_acknowledged(node: RunningNode) -> None:
    sent = ask(node, "POST", "/streams/orders", b"hello", {"Penstock-Header-Source": "curl"}).json()
    (message,) = ask(node, "GET", "/streams/orders?from=1").lines()
    assert (message["sequence"], message["data"], message["headers"]["source"]) == (sent["sequence"], "hello", "curl")
    assert ask(node, "GET", "/streams/orders/consumers/me").lines() == [message]
    assert ask(node, "POST", f"/streams/orders/consumers/me/{sent['sequence']}").json() == {"last_sequence": sent["sequence"]}
    assert ask(node, "GET", "/streams/orders/consumers/me").lines() == []
    assert ask(node, "GET", "/streams/orders/consumers").json()[0]["durable_name"] == "me"
    assert {"subject": "orders", "last_sequence": sent["sequence"]} in ask(node, "GET", "/streams").json()


def test_a_large_body_is_read_back_in_ranges(node: RunningNode) -> None:
    data = os.urandom(6 << 20)
    sequence = ask(node, "POST", "/streams/files", data, {"Content-Type": "image/png"}).json()["sequence"]
    whole = ask(node, "GET", f"/streams/files/{sequence}")
    assert (whole.status, whole.headers["Content-Type"], whole.body == data) == (200, "image/png", True)
    part = ask(node, "GET", f"/streams/files/{sequence}", headers={"Range": "bytes=4194300-4194309"})
    assert (part.status, part.body) == (206, data[4194300:4194310])
    assert ask(node, "GET", f"/streams/files/{sequence}", headers={"Range": "bytes=99999999-"}).status == 416


def test_bytes_that_are_no_text_come_as_base64(node: RunningNode) -> None:
    ask(node, "POST", "/streams/binary", b"\xff\x00")
    assert ask(node, "GET", "/streams/binary").lines()[0]["data_base64"] == "/wA="


def test_errors_say_what_to_do(node: RunningNode) -> None:
    assert ask(node, "GET", "/streams/nowhere").status == 404
    refused = ask(node, "GET", "/streams/orders?from=x")
    assert (refused.status, refused.json()["error"]) == (400, "invalid_request")


def test_who_is_far_over_its_quota_is_told_to_come_back(tmp_path: Path) -> None:
    argv = ["--stream-port", "0", "--stream-http-port", "0", "--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", [*argv, "--fetch-bytes-per-s", "1000"]) as limited:
        for _ in range(2):
            assert ask(limited, "POST", "/streams/orders", b"x" * 20_000).status == 200
        assert len(ask(limited, "GET", "/streams/orders").lines()) == 1
        refused = ask(limited, "GET", "/streams/orders")
        assert (refused.status, refused.json()["error"], refused.headers["Retry-After"]) == (429, "quota_exceeded", "5")
        assert len(ask(limited, "GET", "/streams/orders", headers={"Penstock-Client-Id": "another"}).lines()) == 1
        with (
            pytest.raises(grpc.RpcError) as error,
            StreamClient(f"127.0.0.1:{limited.ready['listeners']['stream']['port']}") as client,
        ):
            client.fetch("orders", "worker")
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_followers_get_events_and_come_back_where_they_were(node: RunningNode) -> None:
    first = ask(node, "POST", "/streams/news", b"1").json()["sequence"]
    assert _events(node, {}, 1) == [(first, "1")]
    second = ask(node, "POST", "/streams/news", b"2").json()["sequence"]
    assert _events(node, {"Last-Event-ID": str(first)}, 1) == [(second, "2")]


def _events(node: RunningNode, headers: dict[str, str], count: int) -> list[tuple[int, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", node.ready["listeners"]["stream_http"]["port"], timeout=PATIENCE_S)
    connection.request("GET", "/streams/news?follow=1", headers=headers)
    response = connection.getresponse()
    found: list[tuple[int, str]] = []
    while len(found) < count:
        line = response.readline()
        if line.startswith(b"data: "):
            message = json.loads(line[6:])
            found.append((message["sequence"], message["data"]))
    connection.close()
    return found


def test_the_command_publishes_lines_and_shows_them(node: RunningNode) -> None:
    sequences = run(node, "publish", "cli.lines", "-H", "a=b", stdin=b"one\ntwo\n").split()
    assert run(node, "fetch", "cli.lines") == f"{sequences[0]}\tcli.lines\tone\n{sequences[1]}\tcli.lines\ttwo\n"
    run(node, "fetch", "cli.lines", "--durable", "me", "--ack", "-n", "1")
    assert run(node, "consumers", "cli.lines", "--no-headers").split() == ["me", "cli.lines", sequences[0], sequences[1]]
    assert json.loads(run(node, "follow", "cli.*", "--from", sequences[1], "-n", "1", "-o", "json"))["data"] == "two"


def test_the_command_configures_and_acknowledges(node: RunningNode) -> None:
    sequence = run(node, "publish", "cli.jobs", stdin=b"job\n").strip()
    run(node, "configure", "cli.jobs", "team", "--ack-wait", "30")
    assert run(node, "fetch", "cli.jobs", "--durable", "team").splitlines() == [f"{sequence}\tcli.jobs\tjob"]
    assert run(node, "fetch", "cli.jobs", "--durable", "team") == ""
    run(node, "ack", "cli.jobs", "team", sequence)
    assert ask(node, "GET", "/streams/cli.jobs/consumers").json()[0]["last_sequence"] == int(sequence)


def test_the_command_publishes_and_fetches_files(node: RunningNode, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(5 << 20))
    sequence = run(node, "publish", "cli.files", str(source)).strip()
    assert "bytes; penstock stream download" in run(node, "fetch", "cli.files")
    run(node, "download", sequence, str(target))
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(AssertionError, match="there is no message"):
        run(node, "download", "1000000", str(target))
    assert target.stat().st_size == 5 << 20, "what is there stays if nothing comes in its place"
    assert set(tmp_path.iterdir()) == {source, target}


def test_lines_are_published_as_they_come(node: RunningNode) -> None:
    stream = node.ready["listeners"]["stream"]
    argv = [*PENSTOCK, "stream", "publish", "cli.live", "--stream", f"{stream['host']}:{stream['port']}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"one", b"two"):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) > 0, "it is there before the next one is"
        process.stdin.close()
        assert process.wait(30) == 0


def test_consumers_of_patterns_are_listed(node: RunningNode) -> None:
    sequence = run(node, "publish", "listed.a", stdin=b"x\n").strip()
    run(node, "ack", "listed.*", "by-pattern", sequence)
    for asked in ("listed.a", "listed.*"):
        assert run(node, "consumers", asked, "--no-headers").split() == ["by-pattern", "listed.*", sequence, sequence]


def test_following_goes_on_after_a_restart_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    argv = ["--stream-port", str(port), "--data-dir", str(tmp_path / "data")]
    follow = [*PENSTOCK, "stream", "follow", "news", "--from", "1", "--stream", f"127.0.0.1:{port}"]
    with running_node(tmp_path / "log", argv) as first:
        run(first, "publish", "news", stdin=b"one\n")
        process = subprocess.Popen(follow, stdout=subprocess.PIPE, env=environment())
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\tnews\tone\n"
        first.kill()
    with running_node(tmp_path / "log", argv) as second:
        run(second, "publish", "news", stdin=b"two\n")
        assert process.stdout.readline() == b"2\tnews\ttwo\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == b""
        assert process.returncode == 0


def test_the_command_says_that_nobody_answers() -> None:
    done = penstock("stream", "fetch", "x", "--stream", "127.0.0.1:1", "--timeout", "2")
    assert done.returncode == 3
