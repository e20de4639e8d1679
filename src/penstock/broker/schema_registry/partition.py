"""The partition of the topic `_schemas`, as the registry reads it and adds to it.

Registries of several nodes may add to it. Each decides on what it has read up to some offset, and its records are stored only if
the partition still ends there: of two that decide at the same time, one is told to read on and decide again.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from penstock.blob import Buffer
from penstock.broker.broker import Broker
from penstock.broker.errors import UnknownTopicError
from penstock.broker.internal_topics import SCHEMAS_TOPIC, internal_config
from penstock.broker.partition_broker import PartitionBroker
from penstock.broker.route import Route
from penstock.broker.topic import Topic
from penstock.core.clock import Clock
from penstock.core.errors import UnavailableError
from penstock.queue import WriteResult, joined


class LogChangedError(UnavailableError):
    """Other records were added first; nothing was stored."""

    code = "schema_log_changed"


class LogPage(NamedTuple):
    """Batches of the log. `end_offset` is where the log ends."""

    batches: Buffer
    next_offset: int
    end_offset: int


class SchemaPartition(Protocol):
    """The partition, on whichever node it runs."""

    @property
    def clock(self) -> Clock:
        """The clock that records are stamped by."""
        ...

    @property
    def exists(self) -> bool:
        """Whether this node knows of the topic."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether registries of other nodes add to it too."""
        ...

    async def read(self, offset: int, size: int) -> LogPage | None:
        """Read from the batch that holds an offset on; one batch at least, if there is one. None while there is no topic."""
        ...

    async def append(self, batch: bytes, end_offset: int) -> None:
        """Store a batch at the end, and create the topic for the first. LogChangedError if it does not end at this offset."""
        ...


class OwnSchemaPartition:
    """The partition of a single node."""

    is_shared = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.clock = broker.clock

    @property
    def exists(self) -> bool:
        """See SchemaPartition."""
        return schemas_topic(self._broker) is not None

    async def read(self, offset: int, size: int) -> LogPage | None:
        """See SchemaPartition."""
        return await read_log(self._broker, offset, size)

    async def append(self, batch: bytes, end_offset: int) -> None:
        """See SchemaPartition."""
        await prepare_log(self._broker)
        await append_log(self._broker, batch, end_offset)


def schemas_topic(broker: PartitionBroker) -> Topic | None:
    """The topic; None while nothing was ever registered."""
    try:
        return broker.catalog.topic(SCHEMAS_TOPIC)
    except UnknownTopicError:
        return None


async def prepare_log(broker: Broker) -> None:
    """Create the topic if there is none yet."""
    topic = await broker.internal_topic(SCHEMAS_TOPIC)
    if topic.config.own != internal_config(SCHEMAS_TOPIC).own:
        # Made by a client for a registry of its own, maybe with a retention that would delete schemas.
        await broker.configure_topic(SCHEMAS_TOPIC, internal_config(SCHEMAS_TOPIC))


async def read_log(broker: PartitionBroker, offset: int, size: int) -> LogPage | None:
    """Read from the partition, which runs here; None if there is no topic. Raises what PartitionBroker.partition does."""
    topic = schemas_topic(broker)
    if topic is None:
        return None
    partition = broker.partition(topic, 0)
    if offset >= partition.end_offset:
        return LogPage(b"", partition.end_offset, partition.end_offset)
    read = await partition.read(offset, size)
    return LogPage(joined(read), read.next_offset, partition.end_offset)


async def append_log(broker: PartitionBroker, batch: bytes, end_offset: int) -> None:
    """Add to the partition, which runs here, if it ends at an offset. Raises what PartitionBroker.partition does."""
    topic = broker.catalog.topic(SCHEMAS_TOPIC)
    partition = broker.partition(topic, 0)
    if partition.end_offset != end_offset or partition.writes_in_flight:
        raise LogChangedError(f"{SCHEMAS_TOPIC} ends at offset {partition.end_offset} by now, not at {end_offset}")
    stored: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
    broker.begin_produce(Route(topic, partition), batch, stored)
    await stored
