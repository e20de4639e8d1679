"""`penstock topic list`: every topic with its size and retention, in a few requests however many topics there are."""

from __future__ import annotations

import base64
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.cli.exit_codes import ExitCode
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Milliseconds, Output, Size
from penstock.kafka.protocol import cluster, configs, keys
from penstock.kafka.protocol.metadata import MetadataResponseTopic

TOPIC_RESOURCE: Final = 2
TOPICS_AT_ONCE: Final = 1000
CLEANUP, RETENTION_MS, RETENTION_BYTES = "cleanup.policy", "retention.ms", "retention.bytes"
UNLIMITED: Final = -1


class TopicRow(NamedTuple):
    """A topic in the list. What the user may not see is None."""

    name: str
    partitions: int
    size: int | None
    cleanup: str | None
    retention_ms: int | None
    retention_bytes: int | None
    id: str


def list_topics(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Prints topics in order of names; internal ones only if asked for."""
    known = sorted(client.metadata(None).topics, key=lambda topic: topic.name or "")
    shown = [
        topic
        for topic in known
        if (topic.name or "").startswith(arguments.prefix) and (arguments.internal or not topic.is_internal)
    ]
    names = [topic.name or "" for topic in shown]
    sizes = _sizes(client, shown)
    settings = dict(_settings(client, names))
    rows = [
        TopicRow(
            name,
            len(topic.partitions),
            sizes.get(name),
            settings.get(name, {}).get(CLEANUP),
            _number(settings.get(name, {}).get(RETENTION_MS)),
            _number(settings.get(name, {}).get(RETENTION_BYTES)),
            topic_uuid(topic.topic_id),
        )
        for topic, name in zip(shown, names, strict=True)
    ]
    if output.as_json:
        output.document([row._asdict() for row in rows])
    else:
        output.rows(("name", "partitions", "size", "retention", "retention bytes"), [_cells(row) for row in rows])
    return ExitCode.OK


def topic_uuid(raw: bytes) -> str:
    """A topic id as Kafka's tools write it."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _cells(row: TopicRow) -> tuple[str | int | None, ...]:
    size = None if row.size is None else Size(row.size)
    if row.cleanup == "compact":  # retention does not apply
        return row.name, row.partitions, size, "compact", None
    kept_ms = None if row.retention_ms is None else Milliseconds(row.retention_ms)
    kept_bytes = None if row.retention_bytes in (None, UNLIMITED) else Size(row.retention_bytes or 0)
    return row.name, row.partitions, size, kept_ms, kept_bytes


def _sizes(client: CommandClient, topics: Sequence[MetadataResponseTopic]) -> dict[str, int]:
    """The stored bytes of topics; none for users who may not describe the cluster, nor of a topic that is in part on a node which
    does not answer."""
    sizes: dict[str, int] = {}
    request = cluster.DescribeLogDirsRequest(topics=None)
    # Each node tells of the partitions that it leads.
    answers = client.ask_each_node(keys.DESCRIBE_LOG_DIRS, request, cluster.DescribeLogDirsResponse)
    for answer in answers.values():
        for directory in answer.results:
            for topic in directory.topics:
                sizes[topic.name] = sizes.get(topic.name, 0) + sum(item.partition_size for item in topic.partitions)
    whole = {topic.name for topic in topics if all(item.leader_id in answers for item in topic.partitions)}
    return {name: size for name, size in sizes.items() if name in whole}


def _settings(client: CommandClient, names: Sequence[str]) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The configuration of topics, as far as the user may describe it."""
    for start in range(0, len(names), TOPICS_AT_ONCE):
        resources = [
            configs.DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[CLEANUP, RETENTION_MS, RETENTION_BYTES]
            )
            for name in names[start : start + TOPICS_AT_ONCE]
        ]
        request = configs.DescribeConfigsRequest(resources=resources)
        for answer in client.call(keys.DESCRIBE_CONFIGS, request, configs.DescribeConfigsResponse).results:
            if not answer.error_code:
                yield answer.resource_name, {config.name: config.value for config in answer.configs}


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
