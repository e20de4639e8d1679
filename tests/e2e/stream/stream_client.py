"""A client of the stream services, made from the messages of the .proto file alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

import grpc

from penstock import minitoolstream as protos

DEADLINE_S = 60.0
BYTES_MAX = 64 << 20


class StreamClient:
    """Calls of both services, as a client in any language would have them."""

    def __init__(self, address: str) -> None:
        options = [("grpc.max_receive_message_length", BYTES_MAX), ("grpc.max_send_message_length", BYTES_MAX)]
        self.channel: Any = grpc.insecure_channel(address, options=options)

    def __enter__(self) -> StreamClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.channel.close()

    def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> Any:
        """Publish one message."""
        request = protos.PublishRequest(subject=subject, data=data, headers=headers or {})
        return self._unary("IngressService/Publish", protos.PublishResponse)(request, timeout=DEADLINE_S)

    def publish_batch(self, messages: Iterable[tuple[str, bytes]]) -> list[Any]:
        """Publish many."""
        request = protos.PublishBatchRequest(messages=[protos.PublishRequest(subject=name, data=data) for name, data in messages])
        return list(self._unary("IngressService/PublishBatch", protos.PublishBatchResponse)(request, timeout=DEADLINE_S).results)

    def upload(self, subject: str, chunks: Iterable[bytes], **header: Any) -> Any:
        """Publish a payload in chunks."""

        def requests() -> Iterator[Any]:
            yield protos.UploadRequest(header=protos.UploadHeader(subject=subject, **header))
            for chunk in chunks:
                yield protos.UploadRequest(chunk=chunk)

        call = self.channel.stream_unary(
            f"/{protos.PACKAGE}.IngressService/Upload",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=protos.PublishResponse.FromString,
        )
        return call(requests(), timeout=DEADLINE_S)

    def download(self, sequence: int, **asked: int) -> Iterator[bytes]:
        """The payload of a message, in chunks."""
        call = self._stream("EgressService/Download", protos.DownloadResponse)
        for answer in call(protos.DownloadRequest(sequence=sequence, **asked), timeout=DEADLINE_S):
            if answer.WhichOneof("part") == "chunk":
                yield answer.chunk

    def fetch(self, subject: str, durable_name: str, batch_size: int = 100) -> list[Any]:
        """What a consumer has not acknowledged."""
        request = protos.FetchRequest(subject=subject, durable_name=durable_name, batch_size=batch_size)
        return list(self._stream("EgressService/Fetch", protos.Message)(request, timeout=DEADLINE_S))

    def read(self, subject: str, from_sequence: int = 1, *, follow: bool = False, limit: int = 0) -> Any:
        """Messages from a sequence on."""
        request = protos.ReadRequest(subject=subject, from_sequence=from_sequence, follow=follow, limit=limit)
        return self._stream("EgressService/Read", protos.Message)(request, timeout=DEADLINE_S)

    def subscribe(self, subject: str, durable_name: str = "", start_sequence: int | None = None) -> Any:
        """The last readable sequence, now and whenever it has grown."""
        request = protos.SubscribeRequest(subject=subject, durable_name=durable_name, start_sequence=start_sequence)
        return self._stream("EgressService/Subscribe", protos.Notification)(request, timeout=DEADLINE_S)

    def last_sequence(self, subject: str) -> int:
        """The last readable sequence."""
        call = self._unary("EgressService/GetLastSequence", protos.GetLastSequenceResponse)
        return int(call(protos.GetLastSequenceRequest(subject=subject), timeout=DEADLINE_S).last_sequence)

    def ack(self, durable_name: str, subject: str, sequence: int, *, rewind: bool = False) -> bool:
        """Acknowledge a message."""
        request = protos.AckRequest(durable_name=durable_name, subject=subject, sequence=sequence, rewind=rewind)
        return bool(self._unary("EgressService/AckMessage", protos.AckResponse)(request, timeout=DEADLINE_S).success)

    def configure(self, durable_name: str, subject: str, ack_wait_s: float, tries_max: int = 0, dead_letter: str = "") -> None:
        """Set the rule by which messages are handed to the members of a durable name."""
        request = protos.ConfigureConsumerRequest(
            durable_name=durable_name,
            subject=subject,
            ack_wait_s=ack_wait_s,
            tries_max=tries_max,
            dead_letter_subject=dead_letter,
        )
        self._unary("EgressService/ConfigureConsumer", protos.ConfigureConsumerResponse)(request, timeout=DEADLINE_S)

    def consumers(self, subject: str) -> list[tuple[str, int]]:
        """Who consumes a subject, and how far each has come."""
        call = self._unary("EgressService/GetConsumers", protos.GetConsumersResponse)
        found = call(protos.GetConsumersRequest(subject=subject), timeout=DEADLINE_S).consumers
        return [(one.durable_name, one.last_sequence) for one in found]

    def _unary(self, method: str, answer: Any) -> Any:
        return self._call(self.channel.unary_unary, method, answer)

    def _stream(self, method: str, answer: Any) -> Any:
        return self._call(self.channel.unary_stream, method, answer)

    def _call(self, kind: Any, method: str, answer: Any) -> Any:
        return kind(
            f"/{protos.PACKAGE}.{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=answer.FromString,
        )
