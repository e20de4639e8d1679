"""The admin API of a running node, called over real HTTP."""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.e2e.running_node import RunningNode

JSON = "application/json"


def eventually(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait until it holds: what is listed may be a few seconds old."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.1)


class Answer(NamedTuple):
    """What was answered; `headers` by lower-case name."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        code: str = self.json["error"]["code"]
        return code


class ApiClient:
    """Calls one node, as one user if it asks for one."""

    def __init__(
        self, host: str, port: int, *, user: str | None = None, password: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.host, self.port = host, port
        self._tls = tls
        self._headers = {} if user is None else {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}

    @property
    def address(self) -> str:
        """Where the node is."""
        return f"{'http' if self._tls is None else 'https'}://{self.host}:{self.port}"

    def connection(self) -> HTTPConnection:
        """A new connection."""
        if self._tls is not None:
            return HTTPSConnection(self.host, self.port, timeout=30, context=self._tls)
        return HTTPConnection(self.host, self.port, timeout=30)

    def send(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """One request, whatever it is."""
        connection = self.connection()
        try:
            connection.request(method, path, body, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def call(self, method: str, path: str, body: object = None, **query: object) -> Answer:
        """One request to the API."""
        asked = "?" + urlencode(query) if query else ""
        raw = None if body is None else json.dumps(body).encode()
        return self.send(method, f"/api/v1{path}{asked}", raw, {} if raw is None else {"Content-Type": JSON})

    def get(self, path: str, **query: object) -> Any:
        """What is there; it must be."""
        answer = self.call("GET", path, **query)
        assert answer.status == 200, (path, answer)
        return answer.json

    def post(self, path: str, body: object) -> Any:
        """Do something; it must succeed."""
        answer = self.call("POST", path, body)
        assert answer.status == 200, (path, answer)
        return answer.json

    @contextmanager
    def events(
        self, path: str, headers: Mapping[str, str] | None = None, **query: object
    ) -> Iterator[Iterator[tuple[str, str, Any]]]:
        """Server-sent events: each with its name, id and data."""
        connection = self.connection()
        try:
            connection.request("GET", f"/api/v1{path}?{urlencode(query)}", None, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.getheader("Content-Type") == "text/event-stream"
            yield _events_of(answer)
        finally:
            connection.close()


def _events_of(answer: HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    fields: dict[str, list[str]] = {}
    for raw in answer:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        elif "data" in fields:
            yield fields["event"][0], fields.get("id", [""])[0], json.loads("\n".join(fields["data"]))
            fields = {}
        else:
            fields = {}


def client_of(node: RunningNode, *, user: str | None = None, password: str = "", tls: ssl.SSLContext | None = None) -> ApiClient:
    """The client of a node that was started with an HTTP port."""
    listener = node.ready["listeners"]["http"]
    return ApiClient(listener["host"], listener["port"], user=user, password=password, tls=tls)
