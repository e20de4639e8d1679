"""Reading partitions of a topic, as commands do it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from penstock.cli.kafka_client import CommandClient
from penstock.client.reader import PlacedRecord, TopicReader
from penstock.kafka.client import finish
from penstock.kafka.protocol.metadata import MetadataResponseTopic


class Consumer:
    """Reads what is committed. `ends` are the offsets to stop before; a partition without one is read for ever."""

    def __init__(self, client: CommandClient, topic: MetadataResponseTopic, starts: dict[int, int], ends: dict[int, int]) -> None:
        info = client.topic_info(topic)
        self._reader = TopicReader(client.coroutines, info, starts, ends, notify)

    def read(self) -> Iterator[list[PlacedRecord]]:
        """What each round of fetches brings, by partition and in the order of offsets."""
        while not self._reader.is_at_end:
            yield finish(self._reader.read_once())


def notify(notice: str) -> None:
    """Tell a person something while messages are printed."""
    sys.stderr.write(f"{notice}\n")
