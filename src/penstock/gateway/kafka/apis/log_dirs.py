"""DescribeLogDirs and AlterReplicaLogDirs: how much the partitions take, how much room there is, and that they stay there."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.cluster import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.kafka.protocol.quorum import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """The storage group as one log directory, with the partitions asked for; without topics, all of them."""
    node = call.node
    directories = node.broker.data_directories()
    total, usable = await asyncio.to_thread(_space, directories)
    result = DescribeLogDirsResult(
        log_dir=_log_dir(directories),
        topics=_topics(node, request.topics),
        total_bytes=total,
        usable_bytes=usable,
    )
    return DescribeLogDirsResponse(results=[result])


async def alter_replica_log_dirs(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """A replica can be asked to be where it is; the storage group is the one directory there is."""
    own = _log_dir(call.node.broker.data_directories())
    results = [_moved(call.node, topic, is_own=requested.path == own) for requested in request.dirs for topic in requested.topics]
    return AlterReplicaLogDirsResponse(results=results)


def _moved(node: Node, requested: AlterReplicaLogDirTopic, *, is_own: bool) -> AlterReplicaLogDirTopicResult:
    result = AlterReplicaLogDirTopicResult(topic_name=requested.name)
    for number in requested.partitions:
        code = errors.NONE if is_own else errors.LOG_DIR_NOT_FOUND
        if is_own:
            try:
                node.broker.partition(find_topic(node, requested.name), number)
            except PenstockError as error:
                code = topic_code(error)
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
    return result


def _log_dir(directories: list[Path]) -> str:
    """The storage group as one directory: what all its disks are below."""
    return os.path.commonpath(directories) if directories else ""


def _topics(node: Node, requested: list[DescribableLogDirTopic] | None) -> list[DescribeLogDirsTopic]:
    wanted = None if requested is None else {topic.topic: set(topic.partitions) for topic in requested}
    described_topics = []
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
            described_topics.append(described)
    return described_topics


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
