"""Partitions as conversations spell them: the name of the topic, a dash, the number."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.broker.consumers import TopicPartition


def topic_id(name: str) -> UUID:
    """Returns the id of a topic, which is its name as bytes, so that it can be read back."""
    return UUID(int=int.from_bytes(name.encode(), "big"))


def partition_of(word: str) -> TopicPartition:
    """Returns the partition that a word such as a-0 names."""
    name, _, number = word.rpartition("-")
    return TopicPartition(topic_id(name), int(number))


def partitions_of(words: Iterable[str]) -> frozenset[TopicPartition]:
    """Returns the partitions that some words name."""
    return frozenset(map(partition_of, words))


def name_of(partition: TopicPartition) -> str:
    """Returns the word for a partition."""
    return f"{partition.topic_id.bytes.lstrip(bytes(1)).decode()}-{partition.partition}"


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Returns the words for some partitions, in order."""
    return " ".join(map(name_of, sorted(partitions))) or "nothing"
