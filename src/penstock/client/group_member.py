"""Consumes a topic as a member of a consumer group whose partitions the broker assigns (KIP-848).

Offsets of processed messages are committed once a second, when a partition moves to another member, and at the end. If the
program is killed, messages processed after the last commit are delivered again to the next member. Heartbeats are sent between
rounds of reading: a member that does not read for longer than the group's session timeout is removed, and joins again when it
reads on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from penstock.client.positions import find_offsets
from penstock.client.reader import PlacedRecord, TopicReader
from penstock.kafka.client import (
    EARLIEST,
    GROUP,
    LATEST,
    KafkaClient,
    RequestRefusedError,
    TopicInfo,
    TopicPartition,
)
from penstock.kafka.protocol import consumer_groups, errors, keys, offsets

COMMIT_INTERVAL_S: Final = 1.0
IDLE_PAUSE_S: Final = 0.1
REBALANCE_TIMEOUT_MS: Final = 60_000
JOINING: Final = 0
LEAVING: Final = -1
_REMOVED: Final = (errors.FENCED_MEMBER_EPOCH, errors.UNKNOWN_MEMBER_ID)

_log = logging.getLogger(__name__)


class GroupMember:
    """One member of a group, from joining to leaving. `read_once` brings messages; `processed` says which of them are done.

    `start` (an offset, or a time in the terms of ListOffsets) is for partitions that the group has no committed offset of.
    Without `follows`, reading ends where each partition ended when it was assigned. `notify` is told what a person should know.
    """

    def __init__(
        self,
        client: KafkaClient,
        topic: TopicInfo,
        group: str,
        *,
        start: tuple[int | None, int | None] = (None, EARLIEST),
        follows: bool = True,
        notify: Callable[[str], None] = _log.warning,
    ) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._start = start
        self._follows = follows
        self._notify = notify
        self._reader = TopicReader(client, topic, {}, {}, notify)
        self._id = str(uuid4())
        self._epoch = JOINING
        self._target: frozenset[int] = frozenset()
        self._owned: set[int] = set()
        self._processed: dict[int, int] = {}  # offsets that are not committed yet
        self._beat_at = self._commit_at = client.network.monotonic()
        self._patience_ends = self._beat_at + client.options.api_timeout_s
        self.is_at_end = False
        "Whether everything was read that this member was to read."

    async def read_once(self) -> list[PlacedRecord]:
        """What one round of fetches brings from the partitions that this member has now."""
        now = self._client.network.monotonic()
        if now >= self._beat_at:
            await self._beat()
        if not self._reader.is_at_end:
            return await self._reader.read_once()
        if not self._follows and self._owned and self._owned == self._target:
            self.is_at_end = True
        elif not self._follows and not self._owned and now >= self._patience_ends:
            self._notify(f"other members of group {self._group!r} have all partitions of {self._topic.name!r}")
            self.is_at_end = True
        else:
            await self._client.network.sleep(IDLE_PAUSE_S)
        return []

    def has(self, number: int) -> bool:
        """Whether a partition is this member's still."""
        return number in self._owned

    def processed(self, number: int, offset: int) -> None:
        """A message is done with; its offset is committed later."""
        if number in self._owned:
            self._processed[number] = offset + 1

    def processed_all(self, numbers: set[int]) -> None:
        """Everything that was read of some partitions is done with, also what is not shown: the ends of transactions."""
        self._processed |= {number: self._reader.position(number) for number in numbers & self._owned}

    async def commit_if_due(self) -> None:
        """Commit, if a second has passed since the last time."""
        if self._client.network.monotonic() >= self._commit_at:
            await self.commit()

    async def leave(self) -> None:
        """Commit what was processed, and let others have the partitions at once."""
        await self.commit()
        if self._processed:  # in an epoch that is over
            await self._beat()
            await self.commit()
        if self._epoch != JOINING:
            self._epoch = LEAVING
            await self._send([])

    async def _beat(self) -> None:
        """Report what this member has, hear what it should have, and act on it."""
        owned = [] if self._epoch == JOINING else sorted(self._owned)
        try:
            answer = await self._client.retry(lambda: self._send(owned))
        except RequestRefusedError as error:
            if error.error_code not in _REMOVED or self._epoch == JOINING:
                raise
            self._rejoin()
            return
        self._epoch = answer.member_epoch
        self._beat_at = self._client.network.monotonic() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is None:
            return
        parts = answer.assignment.topic_partitions
        self._target = frozenset(number for part in parts if part.topic_id == self._topic.id for number in part.partitions)
        if self._owned - self._target:
            await self._revoke(self._owned - self._target)
        if self._target - self._owned:
            await self._take(self._target - self._owned)

    async def _send(self, owned: list[int]) -> consumer_groups.ConsumerGroupHeartbeatResponse:
        has = consumer_groups.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self._topic.id, partitions=owned)
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self._topic.name],
            topic_partitions=[has] if owned else [],
        )
        key, response = keys.CONSUMER_GROUP_HEARTBEAT, consumer_groups.ConsumerGroupHeartbeatResponse
        connection = await self._client.coordinator(GROUP, self._group)
        answer = await self._client.call_on(connection, key, request, response)
        if answer.error_code:
            self._client.forget_coordinator(GROUP, self._group)
            raise RequestRefusedError(f"group {self._group!r}", answer.error_code, answer.error_message)
        return answer

    async def _revoke(self, numbers: set[int]) -> None:
        """What others are to have is theirs once the next heartbeat says so, which is due at once."""
        await self.commit()
        for number in numbers & self._owned:
            self._reader.drop(number)
            self._owned.discard(number)
            self._processed.pop(number, None)
        self._beat_at = self._client.network.monotonic()

    async def _take(self, numbers: frozenset[int]) -> None:
        """Go on from the committed offsets, or start where the group is to start."""
        if not numbers <= self._topic.leaders.keys():
            self._topic = (await self._client.topics([self._topic.name]))[self._topic.name]
            self._reader.know(self._topic)
        committed = await self._client.committed(self._group)
        places = {TopicPartition(self._topic.name, number) for number in numbers}
        missing = {place: self._start for place in places if place not in committed}
        starts = committed | await find_offsets(self._client, missing)
        earliest = await self._client.offsets(dict.fromkeys(places, EARLIEST), committed=True)
        latest = await self._client.offsets(dict.fromkeys(places, LATEST), committed=True)
        for place in places:
            start = min(max(starts[place], earliest[place]), latest[place])
            self._reader.add(place.partition, start, None if self._follows else latest[place])
            if place in missing:
                self._processed[place.partition] = (
                    start  # where the group starts counts from now on, though nothing may come for long
                )
        self._owned |= numbers

    async def commit(self) -> None:
        """Commit the offsets of what was processed."""
        self._commit_at = self._client.network.monotonic() + COMMIT_INTERVAL_S
        if not self._processed:
            return
        try:
            await self._client.retry(self._send_offsets)
        except RequestRefusedError as error:
            if error.error_code in _REMOVED:
                self._rejoin()
            elif error.error_code != errors.STALE_MEMBER_EPOCH:  # the next heartbeat tells which it is; they are sent again then
                raise
        else:
            self._processed.clear()

    async def _send_offsets(self) -> None:
        items = [
            offsets.OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
            for number, offset in self._processed.items()
        ]
        request = offsets.OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._id,
            topics=[offsets.OffsetCommitRequestTopic(name=self._topic.name, partitions=items)],
        )
        connection = await self._client.coordinator(GROUP, self._group)
        answer = await self._client.call_on(connection, keys.OFFSET_COMMIT, request, offsets.OffsetCommitResponse)
        for item in (item for topic in answer.topics for item in topic.partitions):
            if item.error_code:
                self._client.forget_coordinator(GROUP, self._group)
                raise RequestRefusedError(f"group {self._group!r} in partition {item.partition_index}", item.error_code)

    def _rejoin(self) -> None:
        """The group has removed this member after its session timeout: drop its partitions and join again."""
        self._notify(f"group {self._group!r} has removed this member; the last messages may be delivered again")
        for number in self._owned:
            self._reader.drop(number)
        self._owned.clear()
        self._processed.clear()
        self._target = frozenset()
        self._epoch = JOINING
        self._beat_at = self._client.network.monotonic()
