"""Clients that do nothing wrong, one for each protocol: each writes numbered messages while others are being attacked, and at the
end reads them all back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import ydb
import yt.wrapper
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.running_node import RunningNode
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.yt.yt_clusters import NO_CLIENT_RETRIES

TOPIC = "healthy"
PAUSE_S = 0.02
WAIT_S = 60.0


class HealthyClient:
    """Writes until it is told to end. A write that fails is a failure of the node; so is one that is not read back."""

    def __init__(self, name: str, write: Callable[[int], None], read: Callable[[int], list[bytes]]) -> None:
        self.name = name
        self._write = write
        self._read = read
        self.acknowledged = 0
        self.failure: BaseException | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"healthy-{name}", daemon=True)

    def start(self) -> None:
        """Begin to write; the first message is acknowledged when this returns."""
        self._write(0)
        self.acknowledged = 1
        self._thread.start()

    def check_progress(self) -> None:
        """Wait for another message to be acknowledged."""
        before, deadline = self.acknowledged, time.monotonic() + WAIT_S
        while self.acknowledged == before and self.failure is None:
            assert time.monotonic() < deadline, f"{self.name}: nothing is acknowledged any more"
            time.sleep(0.01)
        assert self.failure is None, f"{self.name}: {self.failure!r}"

    def finish(self) -> None:
        """End, and read back what was acknowledged."""
        self._ending.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        assert self.failure is None, f"{self.name}: {self.failure!r}"
        assert self._read(self.acknowledged) == [content(number) for number in range(self.acknowledged)], self.name

    def _run(self) -> None:
        try:
            while not self._ending.wait(PAUSE_S):
                self._write(self.acknowledged)
                self.acknowledged += 1
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            self.failure = error


def content(number: int) -> bytes:
    """The message of a number."""
    return b'{"data":"%d"}' % number


def kafka_client(node: RunningNode) -> HealthyClient:
    """A client of Kafka."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all", "linger.ms": 0, "delivery.timeout.ms": 30_000})

    def write(number: int) -> None:
        failures: list[Any] = []
        producer.produce(
            f"{TOPIC}-kafka", content(number), partition=0, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        assert producer.flush(WAIT_S) == 0
        assert not failures, failures

    def read(count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "any"})
        consumer.assign([TopicPartition(f"{TOPIC}-kafka", 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [message.value() or b"" for message in consumer.consume(1000, 1.0)]
        consumer.close()
        return found

    return HealthyClient("kafka", write, read)


def ydb_client(driver: Any) -> HealthyClient:
    """A client of YDB, on a driver that is connected."""
    path = f"/local/{TOPIC}-ydb"
    driver.topic_client.create_topic(path, consumers=["reader"])
    writer = driver.topic_client.writer(path, producer_id="healthy", codec=ydb.TopicCodec.RAW)

    def read(count: int) -> list[bytes]:
        writer.close()
        found: list[bytes] = []
        with driver.topic_client.reader(path, consumer="reader") as reader:
            while len(found) < count:
                found += [message.data for message in reader.receive_batch(timeout=WAIT_S).messages]
        return found

    return HealthyClient("ydb", lambda number: writer.write_with_ack(content(number), timeout=WAIT_S), read)


def stream_client(client: StreamClient) -> HealthyClient:
    """A client of streams."""

    def read(count: int) -> list[bytes]:
        return [message.data for message in client.read(f"{TOPIC}.stream", limit=count)]

    return HealthyClient("stream", lambda number: client.publish(f"{TOPIC}.stream", content(number)), read)


def yt_client(node: RunningNode) -> HealthyClient:
    """A client of YT."""
    client = yt.wrapper.YtClient(proxy=f"http://127.0.0.1:{port_of(node, 'yt')}", config=NO_CLIENT_RETRIES)
    path = f"//tmp/{TOPIC}"
    client.create("table", path, attributes={"dynamic": True, "schema": [{"name": "data", "type": "string"}]})
    client.mount_table(path, sync=True)

    def read(count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            rows = list(client.pull_queue(path, offset=len(found), partition_index=0))
            assert rows, f"{len(found)} rows of {count}"
            found += [b'{"data":"%b"}' % row["data"].encode() for row in rows]
        return found

    return HealthyClient("yt", lambda number: client.insert_rows(path, [{"data": str(number)}]), read)


def http_client(node: RunningNode) -> HealthyClient:
    """A client of streams over HTTP, on one connection."""
    connection = HTTPConnection("127.0.0.1", port_of(node, "stream_http"), timeout=WAIT_S)

    def call(method: str, path: str, body: bytes = b"") -> bytes:
        connection.request(method, path, body, {"Content-Type": "application/octet-stream"} if body else {})
        answer = connection.getresponse()
        data = answer.read()
        assert answer.status < 300, (answer.status, data)
        return data

    def write(number: int) -> None:
        call("POST", f"/streams/{TOPIC}.http", content(number))

    def read(count: int) -> list[bytes]:
        import json

        lines = call("GET", f"/streams/{TOPIC}.http?limit={count}").splitlines()
        return [json.loads(line)["data"].encode() for line in lines]

    return HealthyClient("stream_http", write, read)


def port_of(node: RunningNode, listener: str) -> int:
    """The port of one of its listeners."""
    return int(node.ready["listeners"][listener]["port"])
