"""Partitions to read messages of, on whichever node they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from penstock.broker import PartitionElsewhereError, Topic
from penstock.core.errors import PenstockError
from penstock.server.http.message_scan import ReadablePartition
from penstock.server.http.node_context import NodeContext


async def readable_partitions(context: NodeContext, topic: Topic, numbers: Sequence[int]) -> list[ReadablePartition]:
    """Some partitions of a topic, in this order. Raises what `broker.partition` does, and UnavailableError if an owner does not
    answer."""
    readable: dict[int, ReadablePartition] = {}
    elsewhere: dict[int, list[int]] = {}
    for number in numbers:
        try:
            readable[number] = context.broker.partition(topic, number)
        except PartitionElsewhereError as error:
            if context.cluster is None or error.node_id is None:
                raise
            elsewhere.setdefault(error.node_id, []).append(number)
    if context.cluster is not None and elsewhere:
        for partition in await context.cluster.partitions.look(topic, elsewhere):
            readable[partition.number] = partition
    return [readable[number] for number in numbers]


async def partitions_of(context: NodeContext, topic: Topic) -> list[ReadablePartition]:
    """All partitions of a topic that are served now; those of a node that does not answer are left out."""
    readable: list[ReadablePartition] = list(context.figures.partitions(topic))
    here = {partition.number for partition in readable}
    by_owner: dict[int | None, list[int]] = {}
    for number in range(topic.partitions):
        if number not in here:
            by_owner.setdefault(context.broker.owner_of(topic, number), []).append(number)
    for owner, numbers in by_owner.items():
        if owner is not None and owner != context.node_id:
            with suppress(PenstockError):
                readable += await readable_partitions(context, topic, numbers)
    return readable
