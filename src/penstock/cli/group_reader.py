"""`penstock consume --group`: a member of a consumer group that prints what it reads."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.cli.consumer import notify
from penstock.cli.kafka_client import CommandClient
from penstock.cli.positions import EARLIEST, Position
from penstock.client.group_member import GroupMember
from penstock.client.reader import PlacedRecord
from penstock.kafka.client import finish
from penstock.kafka.protocol.metadata import MetadataResponseTopic


class GroupReader:
    """One member of a group, from joining to leaving. `read` brings messages; say with `printed` which of them are dealt with."""

    def __init__(
        self, client: CommandClient, topic: MetadataResponseTopic, group: str, *, begin: Position | None, goes_on: bool
    ) -> None:
        start = begin or Position(timestamp_ms=EARLIEST)
        info = client.topic_info(topic)
        self._member = GroupMember(client.coroutines, info, group, start=start, follows=goes_on, notify=notify)

    def read(self) -> Iterator[list[PlacedRecord]]:
        """What each round of fetches brings from the partitions that this member has now."""
        while not self._member.is_at_end:
            yield finish(self._member.read_once())

    def printed(self, records: list[PlacedRecord], all_of_it: bool) -> None:
        """These messages are where they should be; `all_of_it` if nothing of the round was left out."""
        for number, record in records:
            self._member.processed(number, record.offset)
        if all_of_it:
            self._member.processed_all({number for number, _ in records})
        finish(self._member.commit_if_due())

    def leave(self) -> None:
        """Commit what was printed, and let others have the partitions at once."""
        finish(self._member.leave())
