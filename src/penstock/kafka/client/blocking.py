"""The blocking face of the client, for commands and Spark tasks: the same coroutines on blocking sockets, each run to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from penstock.kafka.client.address import Address
from penstock.kafka.client.client import TopicInfo, TopicPartition
from penstock.kafka.client.connection import Connection, ReceiveBuffer, SentRequest
from penstock.kafka.client.network import BlockingNetwork, finish
from penstock.kafka.client.options import ClientOptions
from penstock.kafka.client.transactions import OpenTransaction, ProducerClient, ProducerIdentity
from penstock.kafka.protocol import Message
from penstock.kafka.protocol.metadata import MetadataResponse

T = TypeVar("T")
R = TypeVar("R", bound=Message)


class BlockingConnection:
    """As `Connection`, for one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.address = connection.address
        self.version_of = connection.version_of
        self.close = connection.close

    @classmethod
    def open(cls, address: Address, options: ClientOptions) -> BlockingConnection:
        """Connect, agree on versions and sign in."""
        return cls(finish(Connection.open(address, options, BlockingNetwork(), options.request_timeout_s)))

    def call(
        self,
        key: int,
        request: Message,
        response: type[R],
        *,
        version: int | None = None,
        wait_s: float = 0.0,
        buffer: ReceiveBuffer | None = None,
    ) -> R:
        """Send a request and wait for its reply."""
        return finish(self._connection.call(key, request, response, version=version, wait_s=wait_s, buffer=buffer))

    def send(self, key: int, request: Message, *, version: int | None = None) -> SentRequest:
        """Send a request; `receive` takes its reply."""
        return finish(self._connection.send(key, request, version=version))

    def receive(self, sent: SentRequest, response: type[R]) -> R:
        """Wait for the reply to a request."""
        return finish(self._connection.receive(sent, response))


class BlockingClient:
    """As `ProducerClient`, for one thread at a time."""

    def __init__(self, options: ClientOptions) -> None:
        self._client = self.coroutines = ProducerClient(options, BlockingNetwork())
        "The same client, for code that is written as coroutines: `finish` runs them."
        self.options = options
        self.close = self._client.close
        self.forget = self._client.forget

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def connect(self, address: Address) -> BlockingConnection:
        """Return the connection to one node, opened if there is none."""
        return BlockingConnection(finish(self._client.connect(address)))

    def any_node(self) -> BlockingConnection:
        """Return a connection to the first node that can be reached."""
        return BlockingConnection(finish(self._client.any_node()))

    def node(self, node_id: int) -> BlockingConnection:
        """Return a connection to a node that the last metadata named."""
        return BlockingConnection(finish(self._client.node(node_id)))

    def call(self, key: int, request: Message, response: type[R]) -> R:
        """Send a request that any node serves, in one attempt."""
        return finish(self._client.call(key, request, response))

    def node_call(self, node_id: int, key: int, request: Message, response: type[R], *, wait_s: float = 0.0) -> R:
        """Send a request to a node that the last metadata named, in one attempt."""

        async def call() -> R:
            connection = await self._client.node(node_id)
            return await self._client.call_on(connection, key, request, response, wait_s=wait_s)

        return finish(call())

    def retry(self, attempt: Callable[[], T]) -> T:
        """Repeat until it succeeds, fails for good, or the api timeout is over. Not for what must not happen twice."""

        async def one_attempt() -> T:
            return attempt()

        return finish(self._client.retry(one_attempt))

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
        """Ask for the nodes and for some topics, or all of them, in one attempt; `create` creates those that are missing."""
        return finish(self._client.metadata(topics, create=create))

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Return some topics, or all but the internal ones. RequestRefusedError for one that does not exist."""
        return finish(self._client.topics(names))

    def known_topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Return those of some topics that exist; None asks for all but the internal ones."""
        return finish(self._client.known_topics(names))

    def ask_topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """As `known_topics`, in one attempt."""
        return finish(self._client.ask_topics(names))

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool, topics: Mapping[str, TopicInfo] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset from a time on (in ms), or EARLIEST or LATEST, of each partition; NO_OFFSET for none."""
        return finish(self._client.offsets(wanted, committed=committed, topics=topics))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return every committed offset of a consumer group."""
        return finish(self._client.committed(group))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group that has no members."""
        finish(self._client.commit(group, offsets))

    def commits_together(self) -> bool:
        """Return whether the broker commits several transactions as one."""
        return finish(self._client.commits_together())

    def topic_to_write(self, name: str) -> TopicInfo:
        """Return a topic, created if it is missing and the broker creates topics by itself."""
        return finish(self._client.topic_to_write(name))

    def initialise(self, transactional_id: str | None, timeout_ms: int) -> ProducerIdentity:
        """Become the producer of a transactional id."""
        return finish(self._client.initialise(transactional_id, timeout_ms))

    def record(self, key: str) -> bytes | None:
        """Return what was committed last under a key, None if nothing was."""
        return finish(self._client.record(key))

    def commit_together(self, transactions: Iterable[OpenTransaction], record: tuple[str, bytes], expected: bytes | None) -> bool:
        """Commit all of these and set the record, or do nothing; return whether this call did it."""
        return finish(self._client.commit_together(transactions, record, expected))

    def abort(self, transaction: OpenTransaction) -> None:
        """Abort a transaction if it is still open."""
        finish(self._client.abort(transaction))

    def open_transactions(self, prefix: str) -> list[str]:
        """Return the transactional ids with this prefix that have an open transaction."""
        return finish(self._client.open_transactions(prefix))
