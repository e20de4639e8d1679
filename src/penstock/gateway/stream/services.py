"""The two services of the streams over gRPC: Ingress to publish, Egress to read and acknowledge."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError

from penstock import minitoolstream as protos
from penstock.blob import Buffer
from penstock.broker import UnknownTopicError
from penstock.broker.streams import (
    HEADERS_BYTES_MAX,
    Content,
    DeliveryRule,
    PartlyPublishedError,
    ReadMessages,
    StreamEngine,
    fitting_headers,
)
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.core.trace_context import TRACEPARENT, current_trace
from penstock.gateway.grpc_bodies import source_of
from penstock.gateway.measured_request import MeasuredRequest
from penstock.gateway.stream.admission import CLIENT_HEADER, Admission
from penstock.gateway.stream.following import follow_on, followed
from penstock.gateway.stream.inline_data import INLINE_HEADER, LEFT_OUT, inline_limit, with_data
from penstock.gateway.stream.statuses import INTERNAL, answer_to

log = logging.getLogger(__name__)

BATCH_DEFAULT: Final = 100
BATCH_MAX: Final = 10_000
FETCH_BYTES: Final = 8 << 20
CHUNK_BYTES: Final = 1 << 20
PUBLISHES_MAX: Final = 10_000
WAIT_S: Final = 30.0

Context = Any
T = TypeVar("T")


Answered = Callable[[Any, StreamEngine, Any, Context], Awaitable[T]]
Streamed = Callable[[Any, StreamEngine, Any, Context], AsyncIterator[T]]


def answered(request_type: Any) -> Callable[[Answered[T]], Callable[[Any, Any, Context], Awaitable[T]]]:
    """A call of one message with one answer. The message is received once the caller is known; an error becomes a status of
    gRPC."""

    def decorate(call: Answered[T]) -> Callable[[Any, Any, Context], Awaitable[T]]:
        @functools.wraps(call)
        async def wrapped(self: Any, _: Any, context: Context) -> T:
            admission: Admission = self.admission
            try:
                with admission.under_way(context.peer()), _measured(admission, call.__name__, context):
                    streams = await admitted(admission, context)
                    async with admission.bodies.receive(context) as body:
                        return await call(self, streams, _decoded(request_type, body), context)
            except PenstockError as error:
                raise await _abort(context, error) from error

        return wrapped

    return decorate


def streamed(request_type: Any) -> Callable[[Streamed[T]], Callable[[Any, Any, Context], AsyncIterator[T]]]:
    """The same, for a call with many answers."""

    def decorate(call: Streamed[T]) -> Callable[[Any, Any, Context], AsyncIterator[T]]:
        @functools.wraps(call)
        async def wrapped(self: Any, _: Any, context: Context) -> AsyncIterator[T]:
            admission: Admission = self.admission
            try:
                with admission.under_way(context.peer()), _measured(admission, call.__name__, context):
                    streams = await admitted(admission, context)
                    async with admission.bodies.receive(context) as body:
                        request = _decoded(request_type, body)
                    async for answer in call(self, streams, request, context):
                        yield answer
            except PenstockError as error:
                raise await _abort(context, error) from error

        return wrapped

    return decorate


def uploaded(call: Answered[T]) -> Callable[[Any, Any, Context], Awaitable[T]]:
    """The same, for a call of many messages with one answer."""

    @functools.wraps(call)
    async def wrapped(self: Any, _: Any, context: Context) -> T:
        admission: Admission = self.admission
        try:
            with admission.under_way(context.peer()), _measured(admission, call.__name__, context):
                streams = await admitted(admission, context)
                return await call(self, streams, _uploads(admission, context), context)
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
            yield _decoded(protos.UploadRequest, message)
        finally:
            admission.bodies.give(len(message))


def _decoded(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise InvalidRequestError(f"the message is no {kind.DESCRIPTOR.name}: {error}") from error


def _measured(admission: Admission, name: str, context: Context) -> MeasuredRequest:
    api = name.title().replace("_", "")
    return MeasuredRequest(admission.probe, api, _traceparent(context), name=f"stream {api}")


def _traceparent(context: Context) -> str | None:
    return next((value for key, value in context.invocation_metadata() or () if key == TRACEPARENT), None)


def _carried(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a message, with the trace that it is published in, unless it says so itself."""
    trace = current_trace.get()
    return dict(headers) if trace is None else {TRACEPARENT: trace, **headers}


async def _abort(context: Context, error: PenstockError) -> Exception:
    answer = answer_to(error)
    if answer is INTERNAL:
        log.error("a call of a stream client failed: %s", error, exc_info=error)
    context.set_trailing_metadata((("penstock-error", error.code),))
    await context.abort(answer.grpc, str(error))
    return AssertionError("abort always raises")


class Ingress:
    """Publishing."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission

    @answered(protos.PublishRequest)
    async def publish(self, streams: StreamEngine, request: Any, context: Context) -> Any:
        """One message."""
        published = await streams.publish(request.subject, request.data, _carried(request.headers))
        return protos.PublishResponse(sequence=published.sequence, object_name=published.object_name)

    @answered(protos.PublishBatchRequest)
    async def publish_batch(self, streams: StreamEngine, request: Any, context: Context) -> Any:
        """Many messages. Each has its own result; a failed one does not undo the others."""
        if len(request.messages) > PUBLISHES_MAX:
            raise InvalidRequestError(f"a batch has at most {PUBLISHES_MAX} messages, not {len(request.messages)}")
        by_subject: dict[str, list[int]] = {}
        for at, one in enumerate(request.messages):
            by_subject.setdefault(one.subject, []).append(at)
        results: list[Any] = [None] * len(request.messages)
        for subject, places in by_subject.items():
            contents = [Content(request.messages[at].data, _carried(request.messages[at].headers)) for at in places]
            trouble: PenstockError | None = None
            try:
                published = await streams.publish_batch(subject, contents)
            except PartlyPublishedError as error:
                published, trouble = error.published, error.reason
            except PenstockError as error:
                published, trouble = [], error
            for at, done in zip(places, published, strict=False):
                results[at] = protos.PublishResponse(sequence=done.sequence, object_name=done.object_name)
            for at in places[len(published) :]:
                assert trouble is not None
                code = answer_to(trouble).grpc.value[0]
                results[at] = protos.PublishResponse(status_code=code, error_message=str(trouble))
        return protos.PublishBatchResponse(results=results)

    @uploaded
    async def upload(self, streams: StreamEngine, requests: AsyncIterator[Any], context: Context) -> Any:
        """A payload in chunks, however large."""
        header = None
        async for first in requests:
            header = first.header if first.WhichOneof("part") == "header" else None
            break
        if header is None:
            raise InvalidRequestError("an upload begins with its header: the subject, and whatever else is known")
        published = await streams.publish_stream(
            header.subject,
            _chunks(requests),
            _carried(header.headers),
            crc32c=header.crc32c if header.HasField("crc32c") else None,
            size=header.size if header.HasField("size") else None,
        )
        return protos.PublishResponse(sequence=published.sequence, object_name=published.object_name)


async def admitted(admission: Admission, context: Context) -> StreamEngine:
    """The streams as the caller of gRPC may use them."""
    metadata = dict(context.invocation_metadata() or ())
    client = str(metadata.get(CLIENT_HEADER, ""))
    return await admission.admit(str(metadata.get("authorization", "")), source_of(context), client)


def _inline_max(admission: Admission, context: Context) -> int:
    """How much data the caller of gRPC is sent with a message."""
    asked = dict(context.invocation_metadata() or ()).get(INLINE_HEADER)
    return inline_limit(None if asked is None else str(asked), admission.inline_bytes_max)


async def _chunks(requests: AsyncIterator[Any]) -> AsyncIterator[Buffer]:
    async for request in requests:
        if request.WhichOneof("part") != "chunk":
            raise InvalidRequestError("after its header an upload has only chunks")
        yield request.chunk


class Egress:
    """Reading and acknowledging."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission

    @streamed(protos.SubscribeRequest)
    async def subscribe(self, streams: StreamEngine, request: Any, context: Context) -> AsyncIterator[Any]:
        """The last readable sequence, now if there is one to read, and whenever it has grown."""
        told = await self._start_of(streams, request)
        async for sequence in followed(streams, request.subject, told, WAIT_S):
            yield protos.Notification(subject=request.subject, sequence=sequence)

    @streamed(protos.FetchRequest)
    async def fetch(self, streams: StreamEngine, request: Any, context: Context) -> AsyncIterator[Any]:
        """What a durable consumer has not acknowledged."""
        inline_max = _inline_max(self.admission, context)
        wanted = min(request.batch_size, BATCH_MAX) if request.batch_size > 0 else BATCH_DEFAULT
        for found in await streams.fetch(request.subject, request.durable_name, wanted, FETCH_BYTES):
            message = await with_data(streams, found, inline_max)
            if message is not None:
                yield _message(message)

    @streamed(protos.ReadRequest)
    async def read(self, streams: StreamEngine, request: Any, context: Context) -> AsyncIterator[Any]:
        """Messages from a sequence on."""
        inline_max = _inline_max(self.admission, context)
        sequence = max(request.from_sequence, 1)
        left = request.limit or 1 << 63
        while left > 0:
            try:
                found = await streams.read(request.subject, sequence, min(left, BATCH_MAX), FETCH_BYTES)
            except UnknownTopicError:
                if not request.follow:
                    raise
                found = ReadMessages([], sequence)  # who follows waits for it to be made
            for one in found.messages:
                message = await with_data(streams, one, inline_max)
                if message is not None:
                    yield _message(message)
            left -= len(found.messages)
            if found.next_sequence > sequence:
                sequence = found.next_sequence
            elif not request.follow:
                return
            else:
                await follow_on(streams, request.subject, sequence, WAIT_S)

    @answered(protos.GetLastSequenceRequest)
    async def get_last_sequence(self, streams: StreamEngine, request: Any, context: Context) -> Any:
        """The last sequence that can be read."""
        return protos.GetLastSequenceResponse(last_sequence=await streams.last_sequence(request.subject))

    @answered(protos.AckRequest)
    async def ack_message(self, streams: StreamEngine, request: Any, context: Context) -> Any:
        """A message was dealt with."""
        await streams.acknowledge(request.durable_name, request.subject, request.sequence, rewind=request.rewind)
        return protos.AckResponse(success=True)

    @streamed(protos.DownloadRequest)
    async def download(self, streams: StreamEngine, request: Any, context: Context) -> AsyncIterator[Any]:
        """The payload of a message."""
        message, size = await streams.payload_of(request.sequence)
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
        async for part in streams.read_payload(message, request.offset, end):
            for at in range(0, len(part), CHUNK_BYTES):
                yield protos.DownloadResponse(chunk=bytes(part[at : at + CHUNK_BYTES]))

    @answered(protos.ConfigureConsumerRequest)
    async def configure_consumer(self, streams: StreamEngine, request: Any, context: Context) -> Any:
        """How messages are handed to the members of a durable name."""
        rule = None
        if request.ack_wait_s < 0:
            raise InvalidRequestError(f"ack_wait_s is {request.ack_wait_s}; it is a number of seconds, or 0 for no rule")
        if request.ack_wait_s:
            rule = DeliveryRule(request.ack_wait_s, request.tries_max, request.dead_letter_subject)
        await streams.set_rule(request.durable_name, request.subject, rule)
        return protos.ConfigureConsumerResponse()

    @answered(protos.GetConsumersRequest)
    async def get_consumers(self, streams: StreamEngine, request: Any, context: Context) -> Any:
        """Every durable consumer of a subject."""
        found = await streams.get_consumers(request.subject)
        return protos.GetConsumersResponse(consumers=[protos.Consumer(**one._asdict()) for one in found])

    async def _start_of(self, streams: StreamEngine, request: Any) -> int:
        """What a subscriber knows already."""
        if request.HasField("start_sequence"):
            return max(int(request.start_sequence) - 1, 0)
        if request.durable_name:
            return await streams.get_position(request.durable_name, request.subject)
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
    """The methods that a server of gRPC is given to serve, by service."""
    ingress, egress = Ingress(admission), Egress(admission)
    # All are streams of requests for gRPC, so that nothing is received before the caller is known; clients see no difference.
    unary, answers = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler

    def method(kind: Any, call: Any, response: Any) -> Any:
        return kind(call, response_serializer=response.SerializeToString)

    return {
        f"{protos.PACKAGE}.IngressService": {
            "Publish": method(unary, ingress.publish, protos.PublishResponse),
            "PublishBatch": method(unary, ingress.publish_batch, protos.PublishBatchResponse),
            "Upload": method(unary, ingress.upload, protos.PublishResponse),
        },
        f"{protos.PACKAGE}.EgressService": {
            "Subscribe": method(answers, egress.subscribe, protos.Notification),
            "Fetch": method(answers, egress.fetch, protos.Message),
            "GetLastSequence": method(unary, egress.get_last_sequence, protos.GetLastSequenceResponse),
            "AckMessage": method(unary, egress.ack_message, protos.AckResponse),
            "Read": method(answers, egress.read, protos.Message),
            "Download": method(answers, egress.download, protos.DownloadResponse),
            "ConfigureConsumer": method(unary, egress.configure_consumer, protos.ConfigureConsumerResponse),
            "GetConsumers": method(unary, egress.get_consumers, protos.GetConsumersResponse),
        },
    }
