"""Messages of a topic, one after another: from a start on, or as a member of a consumer group.

With a group, a message counts as processed when the next one is asked for, or when the `with` block ends without an exception:
one whose processing raised an exception is delivered again. Offsets are committed about once a second, and at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.client.group_member import GroupMember
from penstock.client.messages import Message, Start
from penstock.client.positions import find_offsets, position_of
from penstock.client.reader import PlacedRecord, TopicReader
from penstock.client.session import Session
from penstock.core.errors import InvalidRequestError
from penstock.kafka.client import EARLIEST, LATEST, TopicInfo, TopicPartition, finish


class Consumption:
    """What both clients read with: a buffer of messages that `fill` refills."""

    def __init__(
        self, session: Session, topic: str, *, start: Start, partitions: Iterable[int] | None, group: str | None, follow: bool
    ) -> None:
        if group is not None and partitions is not None:
            raise InvalidRequestError("a group's partitions are assigned by the broker; give group or partitions, not both")
        self._session = session
        self._topic = topic
        self._start = position_of(start)
        self._partitions = None if partitions is None else sorted(set(partitions))
        self._group = group
        self._follow = follow
        self._reader: TopicReader | None = None
        self._member: GroupMember | None = None
        self._buffer: deque[PlacedRecord] = deque()
        self._round: set[int] = set()  # the partitions of the buffered messages
        self._last: PlacedRecord | None = None
        self._is_over = False

    def take(self) -> Message | None:
        """The next message of the buffer; None if it is empty."""
        self._acknowledge()
        while self._buffer:
            placed = self._buffer.popleft()
            number, record = placed
            if self._member is not None and not self._member.has(number):
                continue  # the partition is another member's by now
            self._last = placed
            return Message(self._topic, number, *record)
        return None

    async def fill(self) -> bool:
        """Read until there are messages. Returns false when there will be no more."""
        while not self._buffer and not self._is_over:
            if self._reader is None and self._member is None:
                await self._open()
            if self._member is not None:
                self._member.processed_all(self._round)
                await self._member.commit_if_due()
                records = await self._member.read_once()
                self._is_over = self._member.is_at_end
            else:
                assert self._reader is not None
                self._is_over = self._reader.is_at_end
                records = [] if self._is_over else await self._reader.read_once()
            self._buffer.extend(records)
            self._round = {number for number, _ in records}
        if self._is_over and not self._buffer:
            await self.close()
        return bool(self._buffer)

    async def commit(self) -> None:
        """Commit the offsets of all messages that were taken, the last one included."""
        self._acknowledge()
        if self._member is not None:
            await self._member.commit()

    async def close(self) -> None:
        """Commit what was processed and leave the group. The last message that was taken does not count as processed."""
        self._is_over = True
        self._buffer.clear()
        member, self._member = self._member, None
        if member is not None:
            await member.leave()

    def _acknowledge(self) -> None:
        if self._last is not None and self._member is not None:
            self._member.processed(self._last[0], self._last[1].offset)
        self._last = None

    async def _open(self) -> None:
        client = self._session.kafka
        topic = (await client.topics([self._topic]))[self._topic]
        if self._group is not None:
            self._member = GroupMember(client, topic, self._group, start=self._start, follows=self._follow)
            return
        places = [TopicPartition(topic.name, number) for number in self._numbers(topic)]
        starts = await find_offsets(client, dict.fromkeys(places, self._start))
        earliest = await client.offsets(dict.fromkeys(places, EARLIEST), committed=True)
        ends = {} if self._follow else await client.offsets(dict.fromkeys(places, LATEST), committed=True)
        self._reader = TopicReader(
            client,
            topic,
            {place.partition: max(starts[place], earliest[place]) for place in places},
            {place.partition: end for place, end in ends.items()},
        )

    def _numbers(self, topic: TopicInfo) -> list[int]:
        unknown = set(self._partitions or ()) - topic.leaders.keys()
        if unknown:
            raise InvalidRequestError(f"topic {topic.name!r} has partitions 0..{len(topic.leaders) - 1}, not {min(unknown)}")
        return [*topic.leaders] if self._partitions is None else self._partitions


class AsyncMessages:
    """Messages, for `async for`; a context manager that leaves the group at its end."""

    def __init__(self, consumption: Consumption) -> None:
        self._consumption = consumption

    def __aiter__(self) -> AsyncMessages:
        return self

    async def __anext__(self) -> Message:
        while (message := self._consumption.take()) is None:
            if not await self._consumption.fill():
                raise StopAsyncIteration
        return message

    async def __aenter__(self) -> AsyncMessages:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.commit()
        await self.close()

    async def commit(self) -> None:
        """Commit the offsets of all messages so far, the one in hand included."""
        await self._consumption.commit()

    async def close(self) -> None:
        """Commit what was processed and leave the group; the message in hand is not committed."""
        await self._consumption.close()


class Messages:
    """Messages, for `for`; a context manager that leaves the group at its end."""

    def __init__(self, consumption: Consumption) -> None:
        self._consumption = consumption

    def __iter__(self) -> Messages:
        return self

    def __next__(self) -> Message:
        while (message := self._consumption.take()) is None:
            if not finish(self._consumption.fill()):
                raise StopIteration
        return message

    def __enter__(self) -> Messages:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        self.close()

    def commit(self) -> None:
        """Commit the offsets of all messages so far, the one in hand included."""
        finish(self._consumption.commit())

    def close(self) -> None:
        """Commit what was processed and leave the group; the message in hand is not committed."""
        finish(self._consumption.close())
