"""The two gRPC services of the streams: Ingress to publish, Egress to read and acknowledge.

Each method asks its caller to admit the call before it calls the engine.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError

from penstock import minitoolstream as protos
from penstock.blob import Buffer
from penstock.broker import ResourceKind, UnknownTopicError
from penstock.broker.streams import (
    HEADERS_BYTES_MAX,
    Content,
    DeliveryRule,
    PartlyPublishedError,
    ReadMessages,
    fitting_headers,
)
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.core.trace_context import TRACEPARENT, current_trace
from penstock.gateway.grpc_bodies import source_of
from penstock.gateway.measured_request import MeasuredRequest
from penstock.gateway.stream.admission import CLIENT_HEADER, Admission
from penstock.gateway.stream.caller import StreamCaller
from penstock.gateway.stream.inline_data import INLINE_HEADER, LEFT_OUT, inline_limit, with_data
from penstock.gateway.stream.statuses import INTERNAL, statuses_of
from penstock.gateway.stream.subject_tail import last_sequences, wait_for_more

log = logging.getLogger(__name__)

BATCH_DEFAULT: Final = 100
BATCH_MAX: Final = 10_000
CHUNK_BYTES: Final = 1 << 20
PUBLISHES_MAX: Final = 10_000
WAIT_S: Final = 30.0

Context = Any
T = TypeVar("T")


UnaryMethod = Callable[[Any, StreamCaller, Any, Context], Awaitable[T]]
StreamingMethod = Callable[[Any, StreamCaller, Any, Context], AsyncIterator[T]]


def unary_method(request_type: Any) -> Callable[[UnaryMethod[T]], Callable[[Any, Any, Context], Awaitable[T]]]:
    """Serve a method of one request and one response. The request is received after the caller has signed in; an error becomes a
    gRPC status."""

    def decorate(call: UnaryMethod[T]) -> Callable[[Any, Any, Context], Awaitable[T]]:
        @functools.wraps(call)
        async def wrapped(self: Any, _: Any, context: Context) -> T:
            admission: Admission = self.admission
            try:
                with admission.track_call(context.peer()), _measure(admission, call.__name__, context):
                    caller = await admit_caller(admission, context)
                    async with admission.bodies.receive(context) as body:
                        return await call(self, caller, _decode(request_type, body), context)
            except PenstockError as error:
                raise await _abort(context, error) from error

        return wrapped

    return decorate


def streaming_method(request_type: Any) -> Callable[[StreamingMethod[T]], Callable[[Any, Any, Context], AsyncIterator[T]]]:
    """Serve a method of one request and many responses, as `unary_method` does."""

    def decorate(call: StreamingMethod[T]) -> Callable[[Any, Any, Context], AsyncIterator[T]]:
        @functools.wraps(call)
        async def wrapped(self: Any, _: Any, context: Context) -> AsyncIterator[T]:
            admission: Admission = self.admission
            try:
                with admission.track_call(context.peer()), _measure(admission, call.__name__, context):
                    caller = await admit_caller(admission, context)
                    async with admission.bodies.receive(context) as body:
                        request = _decode(request_type, body)
                    async for response in call(self, caller, request, context):
                        yield response
            except PenstockError as error:
                raise await _abort(context, error) from error

        return wrapped

    return decorate


def upload_method(call: UnaryMethod[T]) -> Callable[[Any, Any, Context], Awaitable[T]]:
    """Serve a method of many requests and one response, as `unary_method` does."""

    @functools.wraps(call)
    async def wrapped(self: Any, _: Any, context: Context) -> T:
        admission: Admission = self.admission
        try:
            with admission.track_call(context.peer()), _measure(admission, call.__name__, context):
                caller = await admit_caller(admission, context)
                return await call(self, caller, _uploads(admission, context), context)
        except PenstockError as error:
            raise await _abort(context, error) from error

    return wrapped


async def _uploads(admission: Admission, context: Context) -> AsyncIterator[Any]:
    while True:
        await admission.bodies.wait_for_room()
        message = await context.read()
        if message is grpc.aio.EOF:
            return
        admission.bodies.take(len(message))
        try:
            yield _decode(protos.UploadRequest, message)
        finally:
            admission.bodies.give(len(message))


def _decode(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise InvalidRequestError(f"the message is no {kind.DESCRIPTOR.name}: {error}") from error


def _measure(admission: Admission, name: str, context: Context) -> MeasuredRequest:
    api = name.title().replace("_", "")
    return MeasuredRequest(admission.probe, api, _traceparent(context), name=f"stream {api}")


def _traceparent(context: Context) -> str | None:
    return next((value for key, value in context.invocation_metadata() or () if key == TRACEPARENT), None)


def _with_trace(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a message, and the current trace unless they name one."""
    trace = current_trace.get()
    return dict(headers) if trace is None else {TRACEPARENT: trace, **headers}


async def _abort(context: Context, error: PenstockError) -> Exception:
    statuses = statuses_of(error)
    if statuses is INTERNAL:
        log.error("a call of a stream client failed: %s", error, exc_info=error)
    context.set_trailing_metadata((("penstock-error", error.code),))
    await context.abort(statuses.grpc, str(error))
    return AssertionError("abort always raises")


class Ingress:
    """The methods of publishers."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission

    @unary_method(protos.PublishRequest)
    async def publish(self, caller: StreamCaller, request: Any, context: Context) -> Any:
        """Publish one message."""
        content = Content(request.data, _with_trace(request.headers))
        await caller.admit_publish(request.subject, [content])
        published = await caller.streams.publish(request.subject, content.data, content.headers)
        return protos.PublishResponse(sequence=published.sequence, object_name=published.object_name)

    @unary_method(protos.PublishBatchRequest)
    async def publish_batch(self, caller: StreamCaller, request: Any, context: Context) -> Any:
        """Publish many messages. Each has its own result; a failed one does not undo the others."""
        if len(request.messages) > PUBLISHES_MAX:
            raise InvalidRequestError(f"a batch has at most {PUBLISHES_MAX} messages, not {len(request.messages)}")
        by_subject: dict[str, list[int]] = {}
        for at, message in enumerate(request.messages):
            by_subject.setdefault(message.subject, []).append(at)
        results: list[Any] = [None] * len(request.messages)
        for subject, places in by_subject.items():
            contents = [Content(request.messages[at].data, _with_trace(request.messages[at].headers)) for at in places]
            failure: PenstockError | None = None
            try:
                await caller.admit_publish(subject, contents)
                published = await caller.streams.publish_batch(subject, contents)
            except PartlyPublishedError as error:
                published, failure = error.published, error.reason
            except PenstockError as error:
                published, failure = [], error
            for at, result in zip(places, published, strict=False):
                results[at] = protos.PublishResponse(sequence=result.sequence, object_name=result.object_name)
            for at in places[len(published) :]:
                assert failure is not None
                code = statuses_of(failure).grpc.value[0]
                results[at] = protos.PublishResponse(status_code=code, error_message=str(failure))
        return protos.PublishBatchResponse(results=results)

    @upload_method
    async def upload(self, caller: StreamCaller, requests: AsyncIterator[Any], context: Context) -> Any:
        """Publish a payload of any size, sent in chunks."""
        header = None
        async for first in requests:
            header = first.header if first.WhichOneof("part") == "header" else None
            break
        if header is None:
            raise InvalidRequestError("the first message of an upload must be its header, with the subject")
        headers = _with_trace(header.headers)
        await caller.admit_publish(header.subject, [Content(b"", headers)])
        published = await caller.streams.publish_stream(
            header.subject,
            caller.throttle_upload(_chunks(requests)),
            headers,
            crc32c=header.crc32c if header.HasField("crc32c") else None,
            size=header.size if header.HasField("size") else None,
        )
        return protos.PublishResponse(sequence=published.sequence, object_name=published.object_name)


async def admit_caller(admission: Admission, context: Context) -> StreamCaller:
    """Sign in the caller of a gRPC method."""
    metadata = dict(context.invocation_metadata() or ())
    client = str(metadata.get(CLIENT_HEADER, ""))
    return await admission.admit(str(metadata.get("authorization", "")), source_of(context), client)


def _inline_max(admission: Admission, context: Context) -> int:
    """How many bytes of data are sent with a message of this call."""
    requested = dict(context.invocation_metadata() or ()).get(INLINE_HEADER)
    return inline_limit(None if requested is None else str(requested), admission.inline_bytes_max)


async def _chunks(requests: AsyncIterator[Any]) -> AsyncIterator[Buffer]:
    async for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise InvalidRequestError("after its header an upload must send only chunks")
        yield request.chunk


class Egress:
    """The methods of consumers."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission

    @streaming_method(protos.SubscribeRequest)
    async def subscribe(self, caller: StreamCaller, request: Any, context: Context) -> AsyncIterator[Any]:
        """Send the last readable sequence, at once if it is new to the subscriber, and each time it has grown."""
        known = await self._known_sequence(caller, request)
        async for sequence in last_sequences(caller, request.subject, known, WAIT_S):
            yield protos.Notification(subject=request.subject, sequence=sequence)

    @streaming_method(protos.FetchRequest)
    async def fetch(self, caller: StreamCaller, request: Any, context: Context) -> AsyncIterator[Any]:
        """Send what a durable consumer has not acknowledged."""
        inline_max = _inline_max(self.admission, context)
        count_max = min(request.batch_size, BATCH_MAX) if request.batch_size > 0 else BATCH_DEFAULT
        bytes_max = await caller.admit_read(request.subject, request.durable_name)
        messages = await caller.streams.fetch(request.subject, request.durable_name, count_max, bytes_max)
        caller.charge_read(messages)
        for stored in messages:
            message = await with_data(caller.streams, stored, inline_max, caller.throttle_download)
            if message is not None:
                yield _message(message)

    @streaming_method(protos.ReadRequest)
    async def read(self, caller: StreamCaller, request: Any, context: Context) -> AsyncIterator[Any]:
        """Send messages from a sequence on, with `follow` for as long as the caller stays."""
        inline_max = _inline_max(self.admission, context)
        sequence = max(request.from_sequence, 1)
        left = request.limit or 1 << 63
        while left > 0:
            try:
                bytes_max = await caller.admit_read(request.subject)
                batch = await caller.streams.read(request.subject, sequence, min(left, BATCH_MAX), bytes_max)
            except UnknownTopicError:
                if not request.follow:
                    raise
                batch = ReadMessages([], sequence)  # a follower waits for the subject to be created
            caller.charge_read(batch.messages)
            for stored in batch.messages:
                message = await with_data(caller.streams, stored, inline_max, caller.throttle_download)
                if message is not None:
                    yield _message(message)
            left -= len(batch.messages)
            if batch.next_sequence > sequence:
                sequence = batch.next_sequence
            elif not request.follow:
                return
            else:
                await wait_for_more(caller, request.subject, sequence, WAIT_S)

    @unary_method(protos.GetLastSequenceRequest)
    async def get_last_sequence(self, caller: StreamCaller, request: Any, context: Context) -> Any:
        """Return the last sequence that can be read."""
        await caller.admit_describe(request.subject)
        return protos.GetLastSequenceResponse(last_sequence=await caller.streams.last_sequence(request.subject))

    @unary_method(protos.AckRequest)
    async def ack_message(self, caller: StreamCaller, request: Any, context: Context) -> Any:
        """Acknowledge a message."""
        await caller.admit_acknowledge(request.subject, request.durable_name)
        await caller.streams.acknowledge(request.durable_name, request.subject, request.sequence, rewind=request.rewind)
        return protos.AckResponse(success=True)

    @streaming_method(protos.DownloadRequest)
    async def download(self, caller: StreamCaller, request: Any, context: Context) -> AsyncIterator[Any]:
        """Send the payload of a message in chunks, after a description of it."""
        message, size = await caller.open_payload(request.sequence)
        if request.offset > size:
            raise InvalidRequestError(f"the payload has {size} bytes; there is nothing at {request.offset}")
        payload = message.payload
        info = protos.PayloadInfo(
            subject=message.subject,
            size=size,
            crc32c=0 if payload is None else payload.crc32c or 0,
            object_name=message.object_name,
            headers=fitting_headers(message.headers, HEADERS_BYTES_MAX, LEFT_OUT),
        )
        yield protos.DownloadResponse(info=info)
        end = request.offset + request.length if request.HasField("length") else None
        async for part in caller.throttle_download(caller.streams.read_payload(message, request.offset, end)):
            for at in range(0, len(part), CHUNK_BYTES):
                yield protos.DownloadResponse(chunk=bytes(part[at : at + CHUNK_BYTES]))

    @unary_method(protos.ConfigureConsumerRequest)
    async def configure_consumer(self, caller: StreamCaller, request: Any, context: Context) -> Any:
        """Set or remove the delivery rule of a durable consumer."""
        rule = None
        if request.ack_wait_s < 0:
            raise InvalidRequestError(f"ack_wait_s is {request.ack_wait_s}; it is a number of seconds, or 0 for no rule")
        if request.ack_wait_s:
            rule = DeliveryRule(request.ack_wait_s, request.tries_max, request.dead_letter_subject)
        caller.admit_rule(request.subject, request.durable_name, rule)
        await caller.streams.set_rule(request.durable_name, request.subject, rule)
        return protos.ConfigureConsumerResponse()

    @unary_method(protos.GetConsumersRequest)
    async def get_consumers(self, caller: StreamCaller, request: Any, context: Context) -> Any:
        """List the durable consumers of a subject that the caller may know of."""
        await caller.admit_describe(request.subject)
        positions = await caller.streams.get_consumers(request.subject)
        visible = [position for position in positions if caller.may_describe(ResourceKind.GROUP, position.durable_name)]
        return protos.GetConsumersResponse(consumers=[protos.Consumer(**position._asdict()) for position in visible])

    async def _known_sequence(self, caller: StreamCaller, request: Any) -> int:
        """The last sequence that a subscriber knows of."""
        if request.HasField("start_sequence"):
            return max(int(request.start_sequence) - 1, 0)
        if request.durable_name:
            await caller.admit_describe(request.subject, request.durable_name)
            return await caller.streams.get_position(request.durable_name, request.subject)
        return 0


def _message(message: Any) -> Any:
    return protos.Message(
        subject=message.subject,
        sequence=message.sequence,
        data=message.data,
        headers=message.headers,
        timestamp=protos.timestamp(message.time_ms),
    )


def services(admission: Admission) -> dict[str, dict[str, Any]]:
    """The method handlers of a gRPC server, by service."""
    ingress, egress = Ingress(admission), Egress(admission)
    # Declared as streams of requests, so that gRPC receives nothing before the caller has signed in; clients see no difference.
    unary, streaming = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler

    def method(handler: Any, call: Any, response: Any) -> Any:
        return handler(call, response_serializer=response.SerializeToString)

    return {
        f"{protos.PACKAGE}.IngressService": {
            "Publish": method(unary, ingress.publish, protos.PublishResponse),
            "PublishBatch": method(unary, ingress.publish_batch, protos.PublishBatchResponse),
            "Upload": method(unary, ingress.upload, protos.PublishResponse),
        },
        f"{protos.PACKAGE}.EgressService": {
            "Subscribe": method(streaming, egress.subscribe, protos.Notification),
            "Fetch": method(streaming, egress.fetch, protos.Message),
            "GetLastSequence": method(unary, egress.get_last_sequence, protos.GetLastSequenceResponse),
            "AckMessage": method(unary, egress.ack_message, protos.AckResponse),
            "Read": method(streaming, egress.read, protos.Message),
            "Download": method(streaming, egress.download, protos.DownloadResponse),
            "ConfigureConsumer": method(unary, egress.configure_consumer, protos.ConfigureConsumerResponse),
            "GetConsumers": method(unary, egress.get_consumers, protos.GetConsumersResponse),
        },
    }
