"""Consumes a topic as a member of a consumer group whose partitions the broker assigns (KIP-848).

Offsets of printed messages are committed once a second, when a partition moves to another member, and at the end. If the command
is killed, messages printed after the last commit are delivered again to the next member.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

from penstock.cli.consumer import Consumer
from penstock.cli.group_view import coordinator, positions
from penstock.cli.kafka_client import CommandClient
from penstock.cli.positions import EARLIEST, LATEST, Position, find_offsets, list_offsets
from penstock.cli.record_batch import Record
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import consumer_groups, errors, keys, offsets
from penstock.kafka.protocol.metadata import MetadataResponseTopic

COMMIT_INTERVAL_S: Final = 1.0
IDLE_PAUSE_S: Final = 0.1
REBALANCE_TIMEOUT_MS: Final = 60_000
JOINING: Final = 0
LEAVING: Final = -1
_THROWN_OUT: Final = (errors.FENCED_MEMBER_EPOCH, errors.UNKNOWN_MEMBER_ID)


class GroupReader:
    """One member of a group, from joining to leaving. `read` brings messages; say with `printed` which of them are dealt with."""

    def __init__(
        self, client: CommandClient, topic: MetadataResponseTopic, group: str, *, begin: Position | None, goes_on: bool
    ) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._begin = begin or Position(timestamp_ms=EARLIEST)
        self._goes_on = goes_on
        self._consumer = Consumer(client, topic, {}, {})
        self._node = coordinator(client, group)
        self._id = str(uuid4())
        self._epoch = JOINING
        self._target: frozenset[int] = frozenset()
        self._owned: set[int] = set()
        self._printed: dict[int, int] = {}  # positions that are not committed yet
        self._beat_at = self._commit_at = time.monotonic()

    def read(self) -> Iterator[list[tuple[int, Record]]]:
        """What each round of fetches brings from the partitions that this member has now."""
        patience_ends = time.monotonic() + self._client.timeout_s
        while True:
            if time.monotonic() >= self._beat_at:
                self._beat()
            if not self._consumer.is_at_end:
                yield self._consumer.read_once()
            elif not self._goes_on and self._owned and self._owned == self._target:
                return
            elif not self._goes_on and not self._owned and time.monotonic() >= patience_ends:
                sys.stderr.write(f"other members of group {self._group!r} have all partitions of {self._topic.name!r}\n")
                return
            else:
                time.sleep(IDLE_PAUSE_S)

    def printed(self, records: list[tuple[int, Record]], all_of_it: bool) -> None:
        """These messages are where they should be; `all_of_it` if nothing of the round was left out."""
        self._printed |= {number: record.offset + 1 for number, record in records}
        if all_of_it:  # also what is not shown counts as read: the ends of transactions
            self._printed |= {number: self._consumer.position(number) for number in {number for number, _ in records}}
        if time.monotonic() >= self._commit_at:
            self._commit()

    def leave(self) -> None:
        """Commit what was printed, and let others have the partitions at once."""
        self._commit()
        if self._printed:  # in an epoch that is over
            self._beat()
            self._commit()
        if self._epoch != JOINING:
            self._epoch = LEAVING
            self._send([])

    def _beat(self) -> None:
        """Say what this member has, hear what it should have, and see to it."""
        owned = [] if self._epoch == JOINING else sorted(self._owned)
        try:
            answer = self._client.retry(lambda: self._send(owned))
        except RequestRefusedError as error:
            if error.error_code not in _THROWN_OUT or self._epoch == JOINING:
                raise
            self._forget()
            return
        self._epoch = answer.member_epoch
        self._beat_at = time.monotonic() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is None:
            return
        parts = answer.assignment.topic_partitions
        self._target = frozenset(number for part in parts if part.topic_id == self._topic.topic_id for number in part.partitions)
        if self._owned - self._target:
            self._give_up(self._owned - self._target)
        if self._target - self._owned:
            self._take(self._target - self._owned)

    def _send(self, owned: list[int]) -> consumer_groups.ConsumerGroupHeartbeatResponse:
        has = consumer_groups.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self._topic.topic_id, partitions=owned)
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self._topic.name or ""],
            topic_partitions=[has] if owned else [],
        )
        key, response = keys.CONSUMER_GROUP_HEARTBEAT, consumer_groups.ConsumerGroupHeartbeatResponse
        answer = self._client.node_call(self._node, key, request, response)
        if answer.error_code:
            raise RequestRefusedError(f"group {self._group!r}", answer.error_code, answer.error_message)
        return answer

    def _give_up(self, numbers: set[int]) -> None:
        """What others are to have is theirs once the next heartbeat says so, which is due at once."""
        self._commit()
        for number in numbers & self._owned:
            self._consumer.drop(number)
            self._owned.discard(number)
            self._printed.pop(number, None)
        self._beat_at = time.monotonic()

    def _take(self, numbers: frozenset[int]) -> None:
        """Go on where the group was, or begin where it is to begin."""
        if not numbers <= {item.partition_index for item in self._topic.partitions}:
            self._topic = self._client.topic(self._topic.name or "")
            self._consumer.know(self._topic)
        committed = positions(self._client, self._node, self._group)
        name = self._topic.name or ""
        places = {
            number: Position(offset=committed[name, number]) if (name, number) in committed else self._begin for number in numbers
        }
        starts = find_offsets(self._client, self._topic, places)
        earliest = list_offsets(self._client, self._topic, dict.fromkeys(numbers, EARLIEST))
        latest = list_offsets(self._client, self._topic, dict.fromkeys(numbers, LATEST))
        for number in numbers:
            start = min(max(starts[number], earliest[number]), latest[number])
            self._consumer.add(number, start, None if self._goes_on else latest[number])
            if (name, number) not in committed:
                self._printed[number] = start  # where the group begins counts from now on, though nothing may come for long
        self._owned |= numbers

    def _commit(self) -> None:
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S
        if not self._printed:
            return
        try:
            self._client.retry(self._send_positions)
        except RequestRefusedError as error:
            if error.error_code in _THROWN_OUT:
                self._forget()
            elif error.error_code != errors.STALE_MEMBER_EPOCH:  # the next heartbeat tells which it is; they are sent again then
                raise
        else:
            self._printed.clear()

    def _send_positions(self) -> None:
        items = [
            offsets.OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
            for number, offset in self._printed.items()
        ]
        request = offsets.OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._id,
            topics=[offsets.OffsetCommitRequestTopic(name=self._topic.name or "", partitions=items)],
        )
        answer = self._client.node_call(self._node, keys.OFFSET_COMMIT, request, offsets.OffsetCommitResponse)
        for item in (item for topic in answer.topics for item in topic.partitions):
            if item.error_code:
                raise RequestRefusedError(f"group {self._group!r} in partition {item.partition_index}", item.error_code)

    def _forget(self) -> None:
        """The group has removed this member after its session timeout: drop its partitions and rejoin."""
        sys.stderr.write(f"group {self._group!r} has removed this member; the last printed messages may be delivered again\n")
        for number in self._owned:
            self._consumer.drop(number)
        self._owned.clear()
        self._printed.clear()
        self._target = frozenset()
        self._epoch = JOINING
        self._beat_at = time.monotonic()
