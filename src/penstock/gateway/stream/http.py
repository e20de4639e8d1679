"""Streams over plain HTTP, so that curl is enough. Each handler asks its caller to admit the request before it calls the engine.

POST /streams/{subject}                              publish the body, of any size; Penstock-Header-NAME is a header of it
GET  /streams/{subject}?from=N&limit=N               messages from a sequence on, as lines of JSON; patterns are allowed
GET  /streams/{subject}?follow=1                     the same for ever, as server-sent events; so with Accept: text/event-stream
GET  /streams/{subject}/{sequence}                   the payload of one message, with ranges
GET  /streams                                        all subjects, and the last sequence of each
GET  /streams/{subject}/consumers                    durable consumers and their positions
GET  /streams/{subject}/consumers/{name}?limit=N     what a durable consumer has not acknowledged
POST /streams/{subject}/consumers/{name}/{sequence}  acknowledge; ?rewind=1 also moves the position back
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from ssl import SSLContext
from typing import Any, Final

from aiohttp import web

from penstock.broker import ResourceKind
from penstock.broker.streams import Content, ReadMessages, StreamMessage
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import InvalidRequestError, PenstockError, UnavailableError
from penstock.core.trace_context import TRACEPARENT, current_trace
from penstock.gateway.forwarded_client import seen_through
from penstock.gateway.http_bodies import BodyLimits, IncomingBodies
from penstock.gateway.http_guard import HttpGuard, add_data_headers, own_hosts
from penstock.gateway.http_port import HttpPort
from penstock.gateway.measured_request import MeasuredRequest, status_outcome
from penstock.gateway.stream.admission import CLIENT_HEADER, Admission
from penstock.gateway.stream.caller import StreamCaller
from penstock.gateway.stream.inline_data import INLINE_HEADER, inline_limit, with_data
from penstock.gateway.stream.statuses import statuses_of
from penstock.gateway.stream.subject_tail import wait_for_more

log = logging.getLogger(__name__)

HEADER_PREFIX: Final = "penstock-header-"
UPLOAD_BUFFER_BYTES: Final = 4 << 20  # of an upload, until it is in the payload store
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 10_000
KEEP_ALIVE_S: Final = 15.0
DIGITS_MAX: Final = 19
FIELD_SIZE_MAX: Final = 256

_ERROR_HEADERS: Final[dict[int, dict[str, str]]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Basic"},
    HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": "5"},
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StreamHttp:
    """Serves streams over HTTP between `start` and `stop`."""

    def __init__(
        self,
        admission: Admission,
        *,
        port: HttpPort,
        advertised_host: str | None = None,
        drain_timeout_s: float,
        tls: SSLContext | None = None,
        forward_secret: bytes | None = None,
        body_limits: BodyLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._admission = admission
        self._port = port
        self._forward_secret = forward_secret  # of other nodes, which forward requests
        self._drain_timeout_s = drain_timeout_s
        self._tls = tls
        self._bodies = IncomingBodies(body_limits or BodyLimits(), clock or SystemClock())
        self._guard = HttpGuard(own_hosts(port.host, advertised_host))
        self._runner: web.AppRunner | None = None
        self.probe = admission.probe

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port.port

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        server = None if self._runner is None else self._runner.server
        return 0 if server is None else len(server.connections)

    async def start(self) -> None:
        """Listen. OSError if the address is not free."""
        middlewares = [seen_through(self._forward_secret), self._measure, _answer_errors, self._guard.middleware()]
        app = web.Application(client_max_size=0, middlewares=middlewares)
        app.on_response_prepare.append(add_data_headers)
        app.add_routes(
            [
                web.get("/streams", self._list),
                web.post("/streams/{subject}", self._publish),
                web.get("/streams/{subject}", self._read),
                web.get("/streams/{subject}/consumers", self._consumers),
                web.get("/streams/{subject}/consumers/{name}", self._fetch),
                web.post(r"/streams/{subject}/consumers/{name}/{sequence:[0-9]+}", self._acknowledge),
                web.get(r"/streams/{subject}/{sequence:[0-9]+}", self._payload),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=self._drain_timeout_s)
        await self._port.serve(self._runner, self._tls)

    async def stop(self) -> None:
        """Take no more requests, end those of followers, and finish the others."""
        self._admission.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _measure(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        api = "unknown" if resource is None else f"{request.method} {resource.canonical}"
        with MeasuredRequest(self.probe, api, request.headers.get(TRACEPARENT), name=f"stream {api}") as measured:
            response = await handler(request)
            measured.outcome = status_outcome(response.status)
            return response

    async def _admit(self, request: web.Request) -> StreamCaller:
        headers = request.headers
        return await self._admission.admit(headers.get("Authorization", ""), request.remote or "", headers.get(CLIENT_HEADER, ""))

    def _inline_max(self, request: web.Request) -> int:
        return inline_limit(request.headers.get(INLINE_HEADER), self._admission.inline_bytes_max)

    async def _list(self, request: web.Request) -> web.Response:
        caller = await self._admit(request)
        subjects: list[dict[str, Any]] = []
        for name in await caller.streams.get_subjects():
            if not caller.may_describe(ResourceKind.TOPIC, name):
                continue
            try:
                subjects.append({"subject": name, "last_sequence": await caller.streams.last_sequence(name)})
            except UnavailableError as error:  # of one subject that starts or is damaged; the others are listed
                subjects.append({"subject": name, "last_sequence": None, "error": error.code})
        return web.json_response(subjects)

    async def _publish(self, request: web.Request) -> web.Response:
        caller = await self._admit(request)
        headers = {
            name[len(HEADER_PREFIX) :].lower(): value
            for name, value in request.headers.items()
            if name.lower().startswith(HEADER_PREFIX)
        }
        for name in ("Content-Type", "Content-Encoding"):  # stored as they were sent
            if name in request.headers:
                headers[name.lower()] = request.headers[name]
        trace = current_trace.get()
        if trace is not None:
            headers.setdefault(TRACEPARENT, trace)
        subject = request.match_info["subject"]
        await caller.admit_publish(subject, [Content(b"", headers)])
        body = caller.throttle_upload(self._bodies.parts(request, UPLOAD_BUFFER_BYTES))
        published = await caller.streams.publish_stream(subject, body, headers, size=request.content_length)
        return web.json_response(published._asdict())

    async def _read(self, request: web.Request) -> web.StreamResponse:
        caller = await self._admit(request)
        subject = request.match_info["subject"]
        if _flag(request, "follow") or "text/event-stream" in request.headers.get("Accept", ""):
            return await self._follow(request, caller, subject)
        inline_max = self._inline_max(request)
        sequence, limit = max(_number(request, "from", 1), 1), _limit(request)
        batch = await caller.streams.read(subject, sequence, limit, await caller.admit_read(subject))
        caller.charge_read(batch.messages)
        headers = {"Penstock-Next-Sequence": str(batch.next_sequence)}
        return await _send_lines(request, caller, batch.messages, inline_max, headers)

    async def _follow(self, request: web.Request, caller: StreamCaller, subject: str) -> web.StreamResponse:
        """Send messages as they arrive. A client that reconnects names the last one it has by Last-Event-ID."""
        seen = _parse_number(request.headers.get("Last-Event-ID", ""))
        sequence = max(_number(request, "from", 1), 1) if seen is None else seen + 1
        inline_max = self._inline_max(request)
        await _last_sequence(caller, subject)  # refuse before the response begins
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        while True:
            batch = await _next_messages(caller, subject, sequence)
            for stored in batch.messages:
                message = await with_data(caller.streams, stored, inline_max, caller.throttle_download)
                if message is not None:
                    event = json.dumps(_to_json(message), ensure_ascii=False)
                    await response.write(f"id: {message.sequence}\nevent: message\ndata: {event}\n\n".encode())
            if batch.next_sequence > sequence:
                sequence = batch.next_sequence
                continue
            try:
                if not await wait_for_more(caller, subject, sequence, KEEP_ALIVE_S, gives_up=True):
                    await response.write(b": still here\n\n")
            except UnavailableError:
                return response  # the node is shutting down; the client reconnects by itself

    async def _payload(self, request: web.Request) -> web.StreamResponse:
        caller = await self._admit(request)
        message, size = await caller.open_payload(_sequence(request))
        if message.subject != request.match_info["subject"]:
            raise web.HTTPNotFound(text=f"message {message.sequence} is of subject {message.subject!r}")
        begin, end = _range(request, size)
        headers = {
            "Content-Type": _field(message.headers.get("content-type", "")) or "application/octet-stream",
            "Content-Length": str(end - begin),
            "Accept-Ranges": "bytes",
            "Penstock-Sequence": str(message.sequence),
        }
        if encoding := _field(message.headers.get("content-encoding", "")):
            headers["Content-Encoding"] = encoding
        status = HTTPStatus.OK
        if "Range" in request.headers:
            status = HTTPStatus.PARTIAL_CONTENT
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        async for part in caller.throttle_download(caller.streams.read_payload(message, begin, end)):
            await response.write(part)
        return response

    async def _consumers(self, request: web.Request) -> web.Response:
        caller = await self._admit(request)
        subject = request.match_info["subject"]
        await caller.admit_describe(subject)
        positions = await caller.streams.get_consumers(subject)
        visible = [position for position in positions if caller.may_describe(ResourceKind.GROUP, position.durable_name)]
        return web.json_response([position._asdict() for position in visible])

    async def _fetch(self, request: web.Request) -> web.StreamResponse:
        caller = await self._admit(request)
        subject, name = request.match_info["subject"], request.match_info["name"]
        inline_max, limit = self._inline_max(request), _limit(request)
        messages = await caller.streams.fetch(subject, name, limit, await caller.admit_read(subject, name))
        caller.charge_read(messages)
        return await _send_lines(request, caller, messages, inline_max)

    async def _acknowledge(self, request: web.Request) -> web.Response:
        caller = await self._admit(request)
        subject, name = request.match_info["subject"], request.match_info["name"]
        sequence, rewind = _sequence(request), _flag(request, "rewind")
        await caller.admit_acknowledge(subject, name)
        position = await caller.streams.acknowledge(name, subject, sequence, rewind=rewind)
        return web.json_response({"last_sequence": position})


async def _next_messages(caller: StreamCaller, subject: str, sequence: int) -> ReadMessages:
    if await _last_sequence(caller, subject) < sequence:  # also if there is no such subject yet
        return ReadMessages([], sequence)
    batch = await caller.streams.read(subject, sequence, LIMIT_MAX, await caller.admit_read(subject))
    caller.charge_read(batch.messages)
    return batch


async def _last_sequence(caller: StreamCaller, subject: str) -> int:
    await caller.admit_describe(subject)
    return await caller.streams.last_sequence(subject)


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer an error with its status, and with its code and message as JSON."""
    try:
        return await handler(request)
    except PenstockError as error:
        status = statuses_of(error).http
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning("%s %s: %s", request.method, request.path, error)
        headers = _ERROR_HEADERS.get(status, {})
        return web.json_response({"error": error.code, "message": str(error)}, status=status, headers=headers)


async def _send_lines(
    request: web.Request,
    caller: StreamCaller,
    messages: list[StreamMessage],
    inline_max: int,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send messages as lines of JSON, one by one: all of them with their data may not fit into memory."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson; charset=utf-8", **(headers or {})})
    await response.prepare(request)
    for stored in messages:
        message = await with_data(caller.streams, stored, inline_max, caller.throttle_download)
        if message is not None:
            await response.write(json.dumps(_to_json(message), ensure_ascii=False).encode() + b"\n")
    await response.write_eof()
    return response


def _to_json(message: StreamMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "sequence": message.sequence,
        "subject": message.subject,
        "create_at": message.time_ms / 1000,
        "object_name": message.object_name,
        "headers": message.headers,
    }
    if message.payload is not None:
        return fields if message.payload.size < 0 else {**fields, "size": message.payload.size}
    try:
        return {**fields, "data": message.data.decode()}
    except UnicodeDecodeError:
        return {**fields, "data_base64": base64.b64encode(message.data).decode()}


def _field(value: str) -> str:
    """A message header as an HTTP header; empty if HTTP does not allow its value."""
    return value if value.isascii() and value.isprintable() and len(value) <= FIELD_SIZE_MAX else ""


def _number(request: web.Request, name: str, default: int) -> int:
    raw = request.query.get(name)
    if raw is None:
        return default
    number = _parse_number(raw)
    if number is None:
        raise InvalidRequestError(f"{name} is {raw[:100]!r}; it must be a whole number")
    return number


def _sequence(request: web.Request) -> int:
    number = _parse_number(request.match_info["sequence"])
    if number is None:
        raise InvalidRequestError("the sequence is larger than any sequence can be")
    return number


def _parse_number(raw: str) -> int | None:
    """A number in decimal digits. Returns None if it is not one, or larger than any sequence."""
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) <= DIGITS_MAX else None


def _limit(request: web.Request) -> int:
    return min(_number(request, "limit", LIMIT_DEFAULT), LIMIT_MAX)


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "0") not in ("0", "false", "")


def _range(request: web.Request, size: int) -> tuple[int, int]:
    try:
        requested = request.http_range
    except ValueError as error:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"}) from error
    begin, end, _ = requested.indices(size)
    if "Range" in request.headers and begin >= end:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return begin, end
