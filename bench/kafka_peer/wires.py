"""What a raw load generator says on a connection: ready bytes of a request, and how replies to it are told apart and checked.

Kafka: frames with a size in front. NATS: lines of text, and payloads with their sizes in the line before. A publish to
JetStream names the subject that its acknowledgement is sent to.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod

from bench.kafka_frames import error_code, fetch_error_at, fetch_frame, produce_error_at, produce_frame
from penstock.testing.batches import make_batch

STREAM = "BENCH"
INBOX = b"_INBOX.bench"
LINE_END = b"\r\n"
NATS_HELLO = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


class Wire(ABC):
    """One kind of request on one connection, and the replies to it."""

    hello: bytes = b""

    @abstractmethod
    def request(self, value: bytes) -> bytes:
        """A request with this value."""

    @abstractmethod
    def take(self, received: bytearray) -> int:
        """Remove whole replies from what was received and return how many they were; a refusal raises."""


class KafkaProduce(Wire):
    """Produces one message a request to one partition, with acks=all."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._error_at = produce_error_at(topic)

    def request(self, value: bytes) -> bytes:
        """A produce of a batch of one."""
        return produce_frame(self._topic, self._partition, make_batch([value]))

    def take(self, received: bytearray) -> int:
        """Replies are frames; the error code of the partition has to be 0."""
        return take_frames(received, self._error_at)


class KafkaFetch(Wire):
    """Fetches from one place and waits there for more than there is."""

    def __init__(self, topic: str, partition: int, offset: int, max_wait_ms: int) -> None:
        self._frame = fetch_frame(topic, partition, offset, max_wait_ms=max_wait_ms)
        self._error_at = fetch_error_at(topic)

    def request(self, value: bytes) -> bytes:
        """The same fetch every time."""
        assert not value, "a fetch carries none"
        return self._frame

    def take(self, received: bytearray) -> int:
        """Replies are frames; the error code of the partition has to be 0."""
        return take_frames(received, self._error_at)


def take_frames(received: bytearray, error_at: int) -> int:
    """Remove whole Kafka replies; how many they were."""
    count = 0
    while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
        if code := error_code(received, error_at):
            raise RuntimeError(f"the broker has refused a request with error {code}")
        del received[:end]
        count += 1
    return count


class NatsPublish(Wire):
    """Publishes to a subject of a JetStream stream; each publish is acknowledged by a message to this connection's inbox."""

    def __init__(self, number: int, subject: int) -> None:
        self._inbox = b"%b.%d" % (INBOX, number)
        self._subject = b"%b.%d" % (STREAM.encode(), subject)
        self.hello = NATS_HELLO + b"SUB %b 1\r\n" % self._inbox

    def request(self, value: bytes) -> bytes:
        """A publish that asks for an acknowledgement."""
        return nats_publish(self._subject, self._inbox, value)

    def take(self, received: bytearray) -> int:
        """Acknowledgements are messages that name the stream."""
        payloads = take_messages(received)
        for payload in payloads:
            if not payload.startswith(b'{"stream"'):
                raise RuntimeError(f"the server has refused a publish: {payload[:200]!r}")
        return len(payloads)


def nats_publish(subject: bytes, reply_to: bytes, value: bytes) -> bytes:
    """The bytes of a publish."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply_to, len(value), value)


def create_stream(name: str) -> bytes:
    """The body of the request that creates a stream in files."""
    return json.dumps({"name": name, "subjects": [f"{name}.*"], "storage": "file"}).encode()


def take_messages(received: bytearray) -> list[bytes]:
    """Remove whole lines and messages of NATS; the payloads of the messages."""
    payloads: list[bytes] = []
    while (line_end := received.find(LINE_END)) >= 0:
        after = line_end + len(LINE_END)
        if received.startswith(b"MSG "):
            size = int(received[received.rindex(b" ", 0, line_end) + 1 : line_end])
            if len(received) < after + size + len(LINE_END):
                break
            payloads.append(bytes(received[after : after + size]))
            after += size + len(LINE_END)
        elif received.startswith(b"-ERR"):
            raise RuntimeError(f"the server says {bytes(received[:line_end])!r}")
        del received[:after]  # INFO and PING are for clients that stay longer than a measurement
    return payloads
