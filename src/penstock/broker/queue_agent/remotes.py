"""Requests of the agent to other clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.broker.registrations import Ref
from penstock.core.errors import UnavailableError

REMOTE_TIMEOUT_S = 3.0

T = TypeVar("T")
Offsets = dict[int, int]


class RowPlace(NamedTuple):
    """When the first row from an offset on was committed, in milliseconds, the weight of all rows before it, and how many rows
    there are from it on; times and weights are None where they are not known."""

    commit_ms: int | None
    weight: int | None
    unread: int


class RemoteClusters(Protocol):
    """The requests to other clusters."""

    async def consumer_offsets(self, consumer: Ref, queue: Ref) -> Offsets:
        """The offsets of a consumer of another cluster in a queue, by partition. Raises PenstockError if they are unavailable."""
        ...

    async def queue_partitions(self, queue: Ref) -> list[dict[str, Any]]:
        """The partitions of a queue of another cluster, as `@queue_partitions` gives them."""
        ...

    async def row_at(self, queue: Ref, partition: int, offset: int) -> RowPlace:
        """What is known of an offset of such a queue."""
        ...


class Remotes:
    """Asks other clusters, with a deadline; `clusters` is set by the gateway that can reach them."""

    def __init__(self) -> None:
        self.clusters: RemoteClusters | None = None

    async def consumer_offsets(self, consumer: Ref, queue: Ref) -> Offsets:
        """As above. UnavailableError if the cluster does not answer in time."""
        return await _in_time(self._reached(consumer).consumer_offsets(consumer, queue), consumer)

    async def queue_partitions(self, queue: Ref) -> list[dict[str, Any]]:
        """As above."""
        return await _in_time(self._reached(queue).queue_partitions(queue), queue)

    async def row_at(self, queue: Ref, partition: int, offset: int) -> RowPlace:
        """As above."""
        return await _in_time(self._reached(queue).row_at(queue, partition, offset), queue)

    def _reached(self, ref: Ref) -> RemoteClusters:
        if self.clusters is None:
            raise UnavailableError(f"cluster {ref.cluster!r} cannot be reached: no --peer-cluster names it")
        return self.clusters


async def _in_time(call: Awaitable[T], ref: Ref) -> T:
    try:
        async with asyncio.timeout(REMOTE_TIMEOUT_S):
            return await call
    except TimeoutError as error:
        raise UnavailableError(f"cluster {ref.cluster!r} did not answer in {REMOTE_TIMEOUT_S} s") from error
