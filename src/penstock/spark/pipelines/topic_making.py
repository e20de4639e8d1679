"""Creates the topics of a pipeline, and registers its vital consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.kafka.client import BlockingClient, RequestRefusedError
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from penstock.kafka.protocol.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TOPIC_RESOURCE: Final = 2
APPEND: Final = 2
IMPORTANT: Final = "penstock.important.consumers"


def make_topic(
    client: BlockingClient, name: str, partitions: int | None = None, settings: Mapping[str, str] | None = None
) -> bool:
    """Create a topic if it does not exist; by default with the broker's number of partitions. Returns whether it was created."""
    if name in client.known_topics([name]):
        return False

    def attempt() -> bool:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
        wanted = CreatableTopic(name=name, num_partitions=partitions or -1, replication_factor=-1, configs=configs)
        answer = client.call(keys.CREATE_TOPICS, CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
        for item in answer.topics:
            if item.error_code not in (errors.NONE, errors.TOPIC_ALREADY_EXISTS):
                raise RequestRefusedError(f"topic {name!r} cannot be made", item.error_code, item.error_message or "")
        return all(item.error_code == errors.NONE for item in answer.topics)

    created = client.retry(attempt)
    client.topics([name])  # wait until its metadata is available
    return created


def keep_until_read(client: BlockingClient, topics: Iterable[str], consumer: str) -> None:
    """Make a consumer vital: topics keep messages until it has read them, whatever their retention."""
    change = IncrementalAlterableConfig(name=IMPORTANT, config_operation=APPEND, value=consumer)
    resources = [
        IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
        for topic in sorted(set(topics))
    ]

    def attempt() -> None:
        request = IncrementalAlterConfigsRequest(resources=resources)
        answer = client.call(keys.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse)
        for item in answer.responses:
            if item.error_code:
                raise RequestRefusedError(
                    f"topic {item.resource_name!r} cannot be told to wait for consumer {consumer!r}",
                    item.error_code,
                    item.error_message or "vital needs a Penstock broker, and the right to change the topic",
                )

    client.retry(attempt)
