"""Every HTTP port of a node refuses what a page of another site has a browser send, and no half-sent body is in anyone's way."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.running_node import RunningNode, running_node

pytestmark = pytest.mark.slow
PORTS = ("http", "yt", "stream_http")
SCHEMA = "[{name=data;type=string}]"
CREATE = {"http": "/api/v1/topics", "yt": "/api/v4/create", "stream_http": "/streams/page"}
READ = {"http": "/api/v1/topics", "yt": "/api/v4/list?path=//tmp", "stream_http": "/streams"}


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    base = tmp_path_factory.mktemp("http-ports")
    argv = ["--http-port", "0", "--yt-port", "0", "--stream-http-port", "0", "--data-dir", str(base / "data")]
    with running_node(base / "log", argv) as running:
        yield running


def port_of(node: RunningNode, name: str) -> int:
    """The port of a listener."""
    return int(node.ready["listeners"][name]["port"])


def send(node: RunningNode, name: str, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    """One request to one of the ports."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(node, name), timeout=30)
    try:
        connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def yt(node: RunningNode, method: str, command: str, parameters: str, body: bytes = b"", **headers: str) -> Answer:
    """A command of YT."""
    return send(node, "yt", method, f"/api/v4/{command}", body, X_YT_Parameters=parameters, **headers)


@pytest.fixture
def queue(node: RunningNode) -> str:
    attributes = f"{{dynamic=%true;schema={SCHEMA}}}"
    made = yt(node, "POST", "create", f'{{type=table;path="//tmp/q";ignore_existing=%true;attributes={attributes}}}')
    assert made.status == 200, made.body
    assert yt(node, "POST", "mount_table", '{path="//tmp/q"}').status == 200
    return "//tmp/q"


@pytest.mark.parametrize("name", PORTS)
@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}])
def test_a_page_of_another_site_changes_nothing(node: RunningNode, name: str, headers: dict[str, str]) -> None:
    refused = send(node, name, "POST", CREATE[name], b'{"name":"page"}', Content_Type="text/plain", **headers)
    assert refused.status == 403, refused.body
    assert b"page" not in send(node, "stream_http", "GET", "/streams").body


@pytest.mark.parametrize("name", PORTS)
def test_a_name_that_was_pointed_at_this_machine_is_refused(node: RunningNode, name: str) -> None:
    assert send(node, name, "GET", READ[name]).status == 200
    assert send(node, name, "GET", READ[name], Host="evil.example").status == 403
    assert send(node, name, "GET", READ[name], Host=f"localhost:{port_of(node, name)}").status == 200


def test_commands_do_not_come_as_forms(node: RunningNode) -> None:
    body = b'{"path": "//tmp/form", "type": "map_node"}'
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        refused = send(node, "yt", "POST", "/api/v4/create", body, Content_Type=content_type)
        assert (refused.status, "Content-Type" in json.loads(refused.body)["message"]) == (400, True)
    assert send(node, "yt", "POST", "/api/v4/create", body, Content_Type="application/json").status == 200


def test_what_changes_something_is_no_get(node: RunningNode, queue: str) -> None:
    commands: list[dict[str, Any]] = json.loads(send(node, "yt", "GET", "/api/v4").body)
    changing = [one for one in commands if one["is_volatile"] or one["input_type"] != "null"]
    assert {"remove", "set", "insert_rows", "trim_rows"} <= {one["name"] for one in changing}
    for one in changing:
        refused = send(node, "yt", "GET", f"/api/v4/{one['name']}?path={queue}")
        wanted = "POST" if one["input_type"] == "null" else "PUT"
        assert (refused.status, refused.headers["Allow"]) == (405, wanted), one
        assert json.loads(refused.headers["X-YT-Error"])["code"] == 1
    assert json.loads(yt(node, "GET", "exists", f'{{path="{queue}"}}').body) == {"value": True}


@pytest.mark.parametrize("name", PORTS)
def test_answers_are_taken_for_what_they_say_they_are(node: RunningNode, name: str) -> None:
    assert send(node, name, "GET", READ[name]).headers["X-Content-Type-Options"] == "nosniff"


def test_a_payload_is_never_run(node: RunningNode) -> None:
    sent = send(node, "stream_http", "POST", "/streams/pages", b"<script>steal()</script>", Content_Type="text/html")
    payload = send(node, "stream_http", "GET", f"/streams/pages/{json.loads(sent.body)['sequence']}")
    assert payload.headers["Content-Type"] == "text/html"
    assert payload.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in payload.headers["Content-Security-Policy"]


def half_sent(node: RunningNode, name: str, path: str, method: str, **headers: str) -> socket.socket:
    """A request whose body does not come to its end."""
    sock = socket.create_connection(("127.0.0.1", port_of(node, name)), timeout=30)
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port_of(node, name)}", "Content-Length: 1000000"]
    lines += (f"{key.replace('_', '-')}: {value}" for key, value in headers.items())
    sock.sendall("\r\n".join([*lines, "", ""]).encode() + b"{data=x};" * 1000)
    return sock


def test_half_sent_uploads_are_in_no_ones_way(node: RunningNode, queue: str) -> None:
    parameters = f'{{path="{queue}";input_format=yson}}'
    with ExitStack() as open_:
        for _ in range(40):
            open_.enter_context(half_sent(node, "yt", "/api/v4/insert_rows", "PUT", X_YT_Parameters=parameters))
            open_.enter_context(half_sent(node, "stream_http", "/streams/half", "POST"))
        assert yt(node, "PUT", "insert_rows", parameters, b"{data=a};").status == 200
        assert send(node, "stream_http", "POST", "/streams/half", b"whole").status == 200
    messages = send(node, "stream_http", "GET", "/streams/half").body.splitlines()
    assert [json.loads(line)["data"] for line in messages] == ["whole"]


def test_a_body_to_a_command_that_takes_none_is_small(node: RunningNode) -> None:
    with half_sent(node, "yt", "/api/v4/get", "GET", X_YT_Parameters='{path="//tmp"}'):
        assert yt(node, "GET", "get", '{path="//tmp"}').status == 200
    refused = yt(node, "POST", "get", '{path="//tmp"}', b" " * (5 << 20), Content_Type="application/json")
    assert (refused.status, "more than 4194304 bytes" in json.loads(refused.body)["message"]) == (400, True)


def test_a_small_body_does_not_unpack_to_very_much(node: RunningNode, queue: str) -> None:
    parameters = f'{{path="{queue}";input_format=yson}}'
    before = json.loads(yt(node, "GET", "get", f'{{path="{queue}/@row_count";return_only_value=%true}}').body)
    bomb = gzip.compress(b"{data=x};" * 12_000_000)
    refused = yt(node, "PUT", "insert_rows", parameters, bomb, Content_Encoding="gzip")
    assert (refused.status, "times what was sent" in json.loads(refused.body)["message"]) == (400, True)
    many = yt(node, "PUT", "insert_rows", parameters, gzip.compress(b"{data=x};" * 200_000), Content_Encoding="gzip")
    assert (many.status, "at most 100000" in json.loads(many.body)["message"]) == (400, True)
    cut = gzip.compress(b"{data=x};" * 1000)[:-9]
    assert yt(node, "PUT", "insert_rows", parameters, cut, Content_Encoding="gzip").status == 400
    both = gzip.compress(b"{data=a};") + gzip.compress(b"{data=b};")
    assert yt(node, "PUT", "insert_rows", parameters, both, Content_Encoding="gzip").status == 200
    after = json.loads(yt(node, "GET", "get", f'{{path="{queue}/@row_count";return_only_value=%true}}').body)
    assert after == before + 2
