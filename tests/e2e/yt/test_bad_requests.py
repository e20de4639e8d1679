"""Requests that no client would send: an error with its code in body and headers, HTTP 400, and the node goes on."""

from __future__ import annotations

import gzip
import http.client
import json
import zlib
from typing import Any

import pytest

from tests.e2e.yt.yt_clusters import YtClusters

pytestmark = pytest.mark.slow
SCHEMA = b"[{name=data;type=string}]"


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def code(self) -> int:
        """The code of the error, which is the same in body and headers."""
        told = json.loads(self.headers["X-YT-Error"])
        assert self.status == 400
        assert told["code"] == json.loads(self.body)["code"] == int(self.headers["X-YT-Response-Code"])
        return int(told["code"])


@pytest.fixture
def ask(pythia: YtClusters) -> Any:
    def ask(method: str, command: str, parameters: bytes = b"", body: bytes = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", pythia.ports["pythia"], timeout=20)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if parameters:
            given["X-YT-Parameters"] = parameters.decode("latin-1")
        try:
            connection.request(method, command if command.startswith("/") else f"/api/v4/{command}", body, given)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    return ask


@pytest.fixture
def queue(ask: Any) -> str:
    made = ask(
        "POST",
        "create",
        b'{type=table;path="//tmp/bad";ignore_existing=%true;attributes={dynamic=%true;schema=' + SCHEMA + b"}}",
    )
    assert made.status == 200, made.body
    assert ask("POST", "mount_table", b'{path="//tmp/bad"}').status == 200
    return "//tmp/bad"


@pytest.mark.parametrize(
    ("command", "parameters"),
    [
        ("get", b"{path="),
        ("get", b"[1;2]"),
        ("get", b'{path="\xff\xfe"}'),
        ("get", b"{path=5}"),
        ("get", b'{path="no/slashes"}'),
        ("get", b"{}"),
        ("get", b'{path="//tmp";output_format=xml}'),
        ("create", b'{type=table;path="//tmp/static"}'),
        ("create", b'{type=file;path="//tmp/file"}'),
        ("create", b'{type=table;path="//tmp/s";attributes={dynamic=%true;schema=[{name=a;type=nonsense}]}}'),
        ("pull_queue", b'{queue_path="//tmp/bad";offset=x;partition_index=0}'),
        ("start_transaction", b"{type=other}"),
        ("no_such_command", b"{}"),
        ("register_queue_consumer", b'{queue_path="//tmp/bad";consumer_path=<cluster=mars>"//tmp/c";vital=%true}'),
    ],
)
def test_malformed_parameters(ask: Any, queue: str, command: str, parameters: bytes) -> None:
    method = "POST" if command in ("create", "start_transaction", "register_queue_consumer") else "GET"
    assert ask(method, command, parameters).code in (1, 110, 307)


@pytest.mark.parametrize("body", [b"{data=", b"{data=a};]", b"5;6", b"\x01\xff\xff\xff\xff\x0f"])
def test_malformed_rows(ask: Any, queue: str, body: bytes) -> None:
    assert ask("PUT", "insert_rows", b'{path="//tmp/bad";input_format=yson}', body).code == 110


def test_rows_in_json_and_in_every_compression(ask: Any, queue: str) -> None:
    before = json.loads(ask("GET", "get", b'{path="//tmp/bad/@row_count";return_only_value=%true}').body)
    parameters = b'{path="//tmp/bad";input_format=json}'
    row = b'{"data": "x"}\n'
    for body, encoding in ((row, "identity"), (gzip.compress(row), "gzip"), (zlib.compress(row), "gzip")):
        assert ask("PUT", "insert_rows", parameters, body, Content_Encoding=encoding).status == 200
    assert ask("PUT", "insert_rows", parameters, b"not gzip", Content_Encoding="gzip").code == 110
    assert ask("PUT", "insert_rows", parameters, row, Content_Encoding="lzma").code == 110
    assert json.loads(ask("GET", "get", b'{path="//tmp/bad/@row_count";return_only_value=%true}').body) == before + 3


def test_a_body_that_unpacks_to_too_much(ask: Any, queue: str) -> None:
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    assert ask("PUT", "insert_rows", b'{path="//tmp/bad";input_format=yson}', bomb, Content_Encoding="gzip").code == 1


def test_a_mutation_that_is_sent_again_is_answered_again(ask: Any) -> None:
    parameters = b'{type=map_node;path="//tmp/once";mutation_id="1-2-3-4"}'
    first = ask("POST", "create", parameters)
    assert (first.status, ask("POST", "create", parameters).body) == (200, first.body)
    assert ask("POST", "create", b'{type=map_node;path="//tmp/once";mutation_id="1-2-3-5"}').code == 501


def test_long_parameters(ask: Any) -> None:
    long = b"a" * 100_000
    assert ask("GET", "exists", b'{path="//tmp/' + long + b'"}').status == 200


def test_what_clients_ask_first(ask: Any, pythia: YtClusters) -> None:
    commands = {one["name"]: one for one in json.loads(ask("GET", "/api/v4").body)}
    assert commands["insert_rows"]["input_type"] == "tabular"
    assert json.loads(ask("GET", "/hosts").body) == [f"127.0.0.1:{pythia.ports['pythia']}"]
    assert ask("GET", "get", b'{path="//sys/client_config"}').code == 500
