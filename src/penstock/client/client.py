"""`AsyncClient`: everything a script does with a cluster, as coroutines."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from types import TracebackType
from typing import Any, Final
from weakref import WeakSet

from penstock.client.administration import AsyncGroups, AsyncPipelines, AsyncTopics
from penstock.client.consumption import AsyncMessages, Consumption
from penstock.client.identity import Identity
from penstock.client.messages import Content, Headers, MessageDraft, Start, WrittenMessage, encoded_headers
from penstock.client.session import BlockingCalls, ConnectionSettings, OtherThreads, Session
from penstock.client.streams import AsyncStreams
from penstock.client.writer import TopicWriter
from penstock.core.errors import ConfigError
from penstock.kafka.client import Network

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DRAFTS_AT_ONCE: Final = 5000


class ClientCore:
    """What both clients are made of: a session, the writers of topics, and what is being consumed."""

    def __init__(self, settings: ConnectionSettings, network: Network, calls: BlockingCalls) -> None:
        self.session = Session(settings, network, calls)
        self._writers: dict[str, TopicWriter] = {}
        self._consumptions: WeakSet[Consumption] = WeakSet()

    async def write(self, topic: str, drafts: Iterable[MessageDraft]) -> int:
        """Write messages to a topic, some thousand at a time. Returns how many; they are stored then."""
        writer = await self._writer(topic)
        count = 0
        remaining = iter(drafts)
        while batch := list(islice(remaining, DRAFTS_AT_ONCE)):
            await writer.send(batch)
            count += len(batch)
        return count

    async def write_one(self, topic: str, draft: MessageDraft) -> WrittenMessage:
        """Write one message and return where it is."""
        ((partition, offset),) = (await (await self._writer(topic)).send([draft])).items()
        return WrittenMessage(topic, partition, offset)

    async def _writer(self, topic: str) -> TopicWriter:
        writer = self._writers.get(topic)
        if writer is None:
            writer = self._writers.setdefault(topic, await TopicWriter.open(self.session.kafka, topic))
        return writer

    def consume(
        self, topic: str, *, start: Start, partitions: Iterable[int] | None, group: str | None, follow: bool
    ) -> Consumption:
        """Begin to consume; nothing is sent before the first message is asked for."""
        consumption = Consumption(self.session, topic, start=start, partitions=partitions, group=group, follow=follow)
        self._consumptions.add(consumption)
        return consumption

    async def close(self) -> None:
        """Leave all groups and hang up."""
        try:
            for consumption in list(self._consumptions):
                await consumption.close()
        finally:
            self.session.close()


def make_identity(user: str | None, password: str | None, tls_ca: str | None) -> Identity:
    """Who a client is. ConfigError for a user without a password."""
    if (user is None) != (password is None):
        raise ConfigError("user and password belong together; give both or neither")
    return Identity(user, password or "", tls_ca)


def draft_of(message: MessageDraft | Content) -> MessageDraft:
    """What is to be written: a draft, or a value alone."""
    return message if isinstance(message, MessageDraft) else MessageDraft(None, message)


class AsyncClient:
    """A client of one cluster, for asyncio.

    `bootstrap` is the address of one or several nodes, `host:port,host:port`. `user` and `password` sign in (by SCRAM, or within
    TLS as they are), `tls_ca` is the file of the certificates to trust and turns TLS on. `http` and `stream` are the addresses of
    the admin API and of streams; the node tells them if they are left out. `timeout_s` bounds each call with its retries.
    """

    def __init__(
        self,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        user: str | None = None,
        password: str | None = None,
        tls_ca: str | None = None,
        http: str | None = None,
        stream: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        from penstock.kafka.client.asyncio_network import AsyncioNetwork

        settings = ConnectionSettings(bootstrap, make_identity(user, password, tls_ca), http, stream, timeout_s)
        self._core = ClientCore(settings, AsyncioNetwork(), OtherThreads())
        self.topics = AsyncTopics(self._core.session)
        self.groups = AsyncGroups(self._core.session)
        self.streams = AsyncStreams(self._core.session)
        self.pipelines = AsyncPipelines(self._core.session)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave all groups and hang up."""
        await self._core.close()

    async def produce(
        self,
        topic: str,
        value: Content,
        *,
        key: Content = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> WrittenMessage:
        """Write one message; it is stored, once, when this returns. For many at a time, `produce_many` is much faster."""
        draft = MessageDraft(key, value, encoded_headers(headers), partition, timestamp_ms)
        return await self._core.write_one(topic, draft)

    async def produce_many(self, topic: str, messages: Iterable[MessageDraft | Content]) -> int:
        """Write many messages, values alone or drafts with keys and more. Returns how many; they are stored then."""
        return await self._core.write(topic, map(draft_of, messages))

    def consume(
        self,
        topic: str,
        *,
        start: Start = "earliest",
        partitions: Iterable[int] | None = None,
        group: str | None = None,
        follow: bool = False,
    ) -> AsyncMessages:
        """Read the messages of a topic: up to its present end, or with `follow` for ever. With `group`, partitions are shared
        with its other members, committed offsets come first, and `start` is for partitions without one."""
        return AsyncMessages(self._core.consume(topic, start=start, partitions=partitions, group=group, follow=follow))

    async def admin(self, method: str, path: str, body: object = None) -> Any:
        """Call any path of the admin API, such as `GET /overview`, and return its JSON."""
        return await self._core.session.call(method, path, body)
