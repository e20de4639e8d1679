"""DescribeLogDirs: how much the partitions take, and how much room there is."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.gateway.kafka.protocol.cluster import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """The storage group as one log directory, with the partitions asked for; without topics, all of them."""
    node = call.node
    directories = node.broker.data_directories()
    total, usable = await asyncio.to_thread(_space, directories)
    result = DescribeLogDirsResult(
        log_dir=os.path.commonpath(directories) if directories else "",
        topics=_topics(node, request.topics),
        total_bytes=total,
        usable_bytes=usable,
    )
    return DescribeLogDirsResponse(results=[result])


def _topics(node: Node, asked: list[DescribableLogDirTopic] | None) -> list[DescribeLogDirsTopic]:
    wanted = None if asked is None else {topic.topic: set(topic.partitions) for topic in asked}
    found = []
    for topic in node.broker.catalog.topics():
        if wanted is not None and topic.name not in wanted:
            continue
        described = DescribeLogDirsTopic(name=topic.name)
        for number in range(topic.partitions):
            if wanted is not None and number not in wanted[topic.name]:
                continue
            try:
                size = node.broker.partition(topic, number).size
            except PenstockError:
                continue  # it is starting: how much it holds is known in a moment
            described.partitions.append(DescribeLogDirsPartition(partition_index=number, partition_size=size))
        if described.partitions:
            found.append(described)
    return found


def _space(directories: list[Path]) -> tuple[int, int]:
    """Bytes in all and free, on the disks below the directories; directories of one disk are counted once."""
    disks: dict[int, tuple[int, int]] = {}
    for directory in directories:
        try:
            usage = shutil.disk_usage(directory)
            disks[directory.stat().st_dev] = (usage.total, usage.free)
        except OSError:
            continue  # a disk that is lost has no room
    return sum(total for total, _ in disks.values()), sum(free for _, free in disks.values())
