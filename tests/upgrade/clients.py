"""A node that runs on a data directory of an upgrade test, and every kind of client signed in to it as its administrator."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

import grpc
import ydb
import yt.wrapper
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.secured import ADMIN, authenticate, confluent_options
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.yt.yt_clusters import NO_CLIENT_RETRIES

TIMEOUT_S = 20.0
PASSWORD = "secret"  # without spaces, which YT does not allow in a token
DATABASE = "/local"
OPTIONS = ("--yt-port", "0", "--ydb-port", "0", "--stream-port", "0", "--http-port", "0", "--sasl", "true")
LARGEST = 16 << 20
_BASIC = "Basic " + base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()


class Clients:
    """The clients, each connected when it is first used."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        self._stack = ExitStack()
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}
        self._raw: RawClient | None = None
        self._driver: Any = None
        self._stream: StreamClient | None = None
        self._started_s = time.monotonic()
        self.admin = AdminClient(self.options())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def age_s(self) -> float:
        """For how long the node has been ready."""
        return time.monotonic() - self._started_s

    def port(self, listener: str) -> int:
        """The port of a listener."""
        return int(self.node.ready["listeners"][listener]["port"])

    def options(self, **more: Any) -> dict[str, Any]:
        """The options of a client of confluent-kafka."""
        signed_in = confluent_options(self.node.bootstrap, mechanism="PLAIN", password=PASSWORD)
        return signed_in | {name.replace("_", "."): more[name] for name in more}

    @property
    def raw(self) -> RawClient:
        """A Kafka client that sends exactly what it is told to."""
        if self._raw is None:
            self._raw = self._stack.enter_context(RawClient(self.port("kafka")))
            assert authenticate(self._raw, ADMIN, PASSWORD).error_code == 0
        return self._raw

    @property
    def yt(self) -> Any:
        """A client of YT."""
        proxy = f"http://127.0.0.1:{self.port('yt')}"
        return yt.wrapper.YtClient(proxy=proxy, token=f"{ADMIN}:{PASSWORD}", config=NO_CLIENT_RETRIES)

    def ydb_credentials(self, user: str = ADMIN, password: str = PASSWORD) -> Any:
        """What a YDB client signs in with."""
        return ydb.StaticCredentials(ydb.DriverConfig(self._ydb_endpoint, DATABASE), user, password)

    @property
    def ydb(self) -> Any:
        """The topic client of YDB."""
        if self._driver is None:
            self._driver = ydb.Driver(endpoint=self._ydb_endpoint, database=DATABASE, credentials=self.ydb_credentials())
            self._stack.callback(self._driver.stop)
            self._driver.wait(TIMEOUT_S, fail_fast=True)
        return self._driver.topic_client

    @property
    def _ydb_endpoint(self) -> str:
        return f"grpc://127.0.0.1:{self.port('ydb')}"

    @property
    def stream(self) -> StreamClient:
        """A client of streams."""
        if self._stream is None:
            self._stream = self._stack.enter_context(StreamClient(f"127.0.0.1:{self.port('stream')}"))
            self._stream.channel = grpc.intercept_channel(self._stream.channel, _SignIn())
        return self._stream

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, config=named)])[topic].result(TIMEOUT_S)

    def configure(self, name: str, key: str, value: str, kind: ResourceType = ResourceType.TOPIC) -> None:
        """Change one setting of a topic or of something else that has some."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def produce(self, topic: str, pairs: Sequence[tuple[str | None, bytes | None]], codec: str = "none") -> None:
        """Write messages, all of them in as few batches as the producer makes of them."""
        producer = self._producers.get(codec)
        if producer is None:
            options = self.options(linger_ms=50, message_max_bytes=LARGEST, compression_type=codec)
            producer = self._producers[codec] = Producer(options)
        failures: list[KafkaError] = []
        for key, value in pairs:
            producer.produce(topic, value, key, on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(TIMEOUT_S) == 0
        assert failures == []

    def read(self, topic: str, *, committed: bool = False, offset: int | None = None) -> list[Message]:
        """All messages of a topic of one partition from an offset on, as far as a consumer sees them."""
        consumer = self._consumer("read_committed" if committed else "read_uncommitted")
        if offset is None:  # asked for in advance, since the client takes half a second to find where a topic begins
            offset, _ = self.ends(topic)
        consumer.assign([TopicPartition(topic, 0, offset)])
        consumer.list_topics(topic)  # else it looks for the leader of a topic it has not met only once a second
        found: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert time.monotonic() < deadline, f"no end of {topic} after {len(found)} messages"
            message = consumer.poll(0.5)
            error = None if message is None else message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            assert error is None, error
            if message is not None:
                found.append(message)

    def _consumer(self, isolation: str) -> Consumer:
        if isolation not in self._consumers:
            sizes = {"fetch_message_max_bytes": LARGEST, "message_max_bytes": LARGEST, "receive_message_max_bytes": 10 * LARGEST}
            reads = {"group_id": "upgrade-reader", "enable_partition_eof": True, "isolation_level": isolation}
            consumer = Consumer(self.options(fetch_wait_max_ms=20, enable_auto_commit=False, **reads, **sizes))
            self._stack.callback(consumer.close)
            self._consumers[isolation] = consumer
        return self._consumers[isolation]

    def values(self, topic: str, *, committed: bool = False) -> list[str]:
        """The values of all messages of a topic of one partition."""
        return [(message.value() or b"").decode() for message in self.read(topic, committed=committed)]

    def ends(self, topic: str) -> tuple[int, int]:
        """The first offset of a topic of one partition, and the next one to be written."""
        return self._consumer("read_uncommitted").get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S, cached=False)

    def revoke_tokens(self, user: str) -> None:
        """End all tokens of a user, by the admin API."""
        url = f"http://127.0.0.1:{self.port('http')}/api/v1/users/{user}/tokens"
        with urlopen(Request(url, method="DELETE", headers={"Authorization": _BASIC}), timeout=TIMEOUT_S) as response:
            assert response.status == 200


class _SignIn(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor):  # type: ignore[misc] # gRPC has no types
    """Adds the administrator's password to every call."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(_signed(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(_signed(details), request)

    def intercept_stream_unary(self, continuation: Any, details: Any, request_iterator: Any) -> Any:
        return continuation(_signed(details), request_iterator)


def _signed(details: Any) -> Any:
    return details._replace(metadata=[*(details.metadata or ()), ("authorization", _BASIC)])


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


@contextmanager
def clients_of(folder: Path, *options: str) -> Iterator[Clients]:
    """Start a node on the data directory in a folder. What is left of it is killed at the end."""
    password = folder / "password"
    password.write_text(PASSWORD)
    argv = [
        "--data-dir",
        str(folder / "data"),
        "--admin-password-file",
        str(password),
        *OPTIONS,
        "--compaction-interval-s",
        "0.1",
        *options,
    ]
    with running_node(folder / "node.log", argv) as node, Clients(node) as clients:
        yield clients
