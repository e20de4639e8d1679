"""A Kafka client that sends exactly what a test tells it to, right or wrong."""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import TypeVar

from penstock.kafka.protocol import Message, decode_response, encode_request, keys
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.kafka.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

M = TypeVar("M", bound=Message)

TIMEOUT_S = 10.0
CLIENT_ID = "raw"

_SIZE = Struct(">i")


class RawClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def send(self, key: int, version: int, request: Message) -> int:
        """Send a request; its correlation id."""
        self._correlation_id += 1
        self.socket.sendall(frame_of(key, version, request, self._correlation_id))
        return self._correlation_id

    def receive_frame(self) -> bytes | None:
        """The next frame; None if the broker has hung up."""
        head = self._receive(_SIZE.size)
        return None if head is None else self._receive(_SIZE.unpack(head)[0])

    def receive(self, key: int, version: int, kind: type[M]) -> tuple[int, M]:
        """The next reply, with its correlation id."""
        frame = self.receive_frame()
        assert frame is not None, "the broker has hung up"
        correlation_id, response = decode_response(key, version, frame)
        assert isinstance(response, kind)
        return correlation_id, response

    def call(self, key: int, version: int, request: Message, kind: type[M]) -> M:
        """Send a request and wait for its reply."""
        sent = self.send(key, version, request)
        correlation_id, response = self.receive(key, version, kind)
        assert correlation_id == sent
        return response

    def produce(
        self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        """Send one batch to one partition; what became of it."""
        response = self.call(keys.PRODUCE, version, produce_request(topic, batch, partition, acks), ProduceResponse)
        return response.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0, version: int = 11
    ) -> PartitionData:
        """Read one partition from an offset on."""
        request = fetch_request(topic, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        response = self.call(keys.FETCH, version, request, FetchResponse)
        assert response.error_code == 0
        return response.responses[0].partitions[0]

    def _receive(self, size: int) -> bytes | None:
        found = bytearray()
        while len(found) < size:
            try:
                part = self.socket.recv(size - len(found))
            except ConnectionResetError:
                return None
            if not part:
                return None
            found += part
        return bytes(found)


def frame_of(key: int, version: int, request: Message, correlation_id: int = 1) -> bytes:
    """A whole request as it is sent."""
    buffers, _ = encode_request(key, version, correlation_id, CLIENT_ID, request)
    return b"".join(bytes(buffer) for buffer in buffers)


def produce_request(topic: str, batch: bytes, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000) -> ProduceRequest:
    """A request that sends one batch to one partition."""
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch_request(
    topic: str, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0, min_bytes: int = 1, partition: int = 0
) -> FetchRequest:
    """A request that reads one partition, without a session."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
