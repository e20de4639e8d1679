"""/topics/{name}/trim and /purge: deletes messages of a topic before some offsets, or all of them, on whichever node they are."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec

from penstock.broker import Operation, PartitionElsewhereError, Topic, check_not_internal
from penstock.server.http.errors import MalformedRequestError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.readable_partitions import readable_partitions
from penstock.server.http.route import Call, Count, Nothing, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.topics import TopicNames, topic_for

TRIMMED_AT_ONCE: Final = 100  # partitions


class TrimOffsets(RequestModel, frozen=True):
    """The offset of each partition before which messages are deleted."""

    offsets: dict[Annotated[str, msgspec.Meta(pattern="^[0-9]{1,6}$")], Count]


class TrimResult(ResponseModel, frozen=True):
    """Where partitions start now."""

    starts: dict[str, int]


class PurgeResult(ResponseModel, frozen=True):
    """How many offsets were deleted."""

    deleted: int


class TopicTrimResource(Resource):
    """Deletion of messages."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("POST", "/topics/{name}/trim", self.trim, "delete messages before some offsets", (404, 422)),
            Route("POST", "/topics/{name}/purge", self.purge, "delete all messages that are there now", (404, 422)),
        ]

    async def trim(self, call: Call[TopicNames, Nothing, TrimOffsets]) -> TrimResult:
        """POST /topics/{name}/trim: nothing is done unless all offsets are within their partitions."""
        topic = self._topic(call)
        wanted = {int(number): offset for number, offset in call.body.offsets.items()}
        for partition in await readable_partitions(self._context, topic, list(wanted)):
            if (offset := wanted[partition.number]) > partition.end_offset:
                raise MalformedRequestError(
                    f"partition {partition.number} ends at {partition.end_offset}; it cannot be trimmed to {offset}"
                )
        return TrimResult(starts={str(number): await self._trim(topic, number, offset) for number, offset in wanted.items()})

    async def purge(self, call: Call[TopicNames, Nothing, Nothing]) -> PurgeResult:
        """POST /topics/{name}/purge."""
        topic = self._topic(call)
        partitions = await readable_partitions(self._context, topic, range(topic.partitions))
        before = {partition.number: partition.start_offset for partition in partitions}
        starts: list[int] = []
        for first in range(0, topic.partitions, TRIMMED_AT_ONCE):
            numbers = range(first, min(first + TRIMMED_AT_ONCE, topic.partitions))
            starts += await asyncio.gather(*(self._trim(topic, number, None) for number in numbers))
        return PurgeResult(deleted=sum(starts) - sum(before.values()))

    async def _trim(self, topic: Topic, number: int, offset: int | None) -> int:
        """Deletes messages before an offset, or all. Returns where the partition starts then."""
        try:
            partition = self._context.broker.partition(topic, number)
        except PartitionElsewhereError as error:
            if self._context.cluster is None or error.node_id is None:
                raise
            return await self._context.cluster.partitions.trim(error.node_id, topic, number, offset)
        return await partition.trim(partition.end_offset if offset is None else offset)

    def _topic(self, call: Call[TopicNames, Nothing, TrimOffsets] | Call[TopicNames, Nothing, Nothing]) -> Topic:
        topic = topic_for(self._context, call.caller, Operation.DELETE, call.names.name)
        check_not_internal(topic.name)
        return topic
