"""Handing messages to the members of a durable name, each to one of them, and again if it is not acknowledged in time.

What is stored is the position, below which all is acknowledged, and single acknowledgements beyond it. Who has what until when,
and the how manieth time, is in memory: after a restart whatever is not acknowledged is handed out anew, and tries count from one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from penstock.broker.streams.positions import DeliveryRule, Positions
from penstock.broker.streams.probe import EngineProbe
from penstock.broker.streams.reading import Reader, StreamMessage
from penstock.broker.streams.sequencer import Subject
from penstock.broker.system_tablet import TableTablet
from penstock.core.clock import Clock

HANDED_MAX: Final = 10_000  # not acknowledged, for each durable name and subject

DeadLetter = Callable[[str, StreamMessage, str, int], Awaitable[None]]


class Handed(NamedTuple):
    """That a message is with someone: until when, and the how manieth time."""

    until: float
    tries: int


class Hand:
    """What is out of one subject for one durable name. Pure."""

    def __init__(self, position: int, acknowledged: set[int]) -> None:
        self.out: dict[int, Handed] = {}  # by sequence, in order: what is handed out again keeps its place
        self.acknowledged = acknowledged  # beyond the position
        self.next_sequence = position + 1  # everything before it was handed out, or is not there
        self.changing = asyncio.Lock()

    def overdue(self, now: float) -> list[tuple[int, Handed]]:
        """What was not acknowledged in time."""
        return [(sequence, handed) for sequence, handed in self.out.items() if handed.until <= now]

    def acknowledge(self, sequence: int) -> None:
        """A message was dealt with."""
        self.out.pop(sequence, None)
        self.acknowledged.add(sequence)

    @property
    def position(self) -> int:
        """The sequence up to which all is acknowledged, or not there."""
        return next(iter(self.out), self.next_sequence) - 1

    def settled(self) -> list[int]:
        """Single acknowledgements that the position has reached."""
        position = self.position
        return [sequence for sequence in self.acknowledged if sequence <= position]


class HandingOut:
    """What is out of every subject for every durable name that has a rule of delivery."""

    def __init__(self, positions: Positions, reader: Reader, dead_letter: DeadLetter, clock: Clock, probe: EngineProbe) -> None:
        self._positions = positions
        self._reader = reader
        self._dead_letter = dead_letter
        self._clock = clock
        self._probe = probe
        self._hands: dict[tuple[str, str], Hand] = {}

    async def reload(self, _tablet: TableTablet) -> None:
        """The tablet was started again: what failed may have been done."""
        self._hands.clear()

    def forget(self, durable_name: str, subject: str) -> None:
        """Begin anew, from the position that is stored."""
        self._hands.pop((durable_name, subject), None)

    async def take(
        self, durable_name: str, subject: Subject, rule: DeliveryRule, limit: int, bytes_max: int
    ) -> list[StreamMessage]:
        """Messages that nobody has: first those that someone had for too long, then new ones."""
        hand = self._hand(durable_name, subject.name)
        async with hand.changing:
            found = await self._overdue(hand, durable_name, subject, rule, limit)
            size = sum(len(message.data) for message in found)
            room = min(limit, HANDED_MAX - len(hand.out))
            while len(found) < room and (not found or size < bytes_max):
                read = await self._reader.of_subject(subject, hand.next_sequence, room - len(found), bytes_max - size)
                for message in read.messages:
                    if message.sequence not in hand.acknowledged:
                        hand.out[message.sequence] = Handed(self._clock.monotonic() + rule.ack_wait_s, 1)
                        found.append(message)
                        size += len(message.data)
                if read.next_sequence <= hand.next_sequence:
                    break
                hand.next_sequence = read.next_sequence
                await asyncio.sleep(0)  # many that are acknowledged already are read from memory without suspending
        return found

    async def acknowledge(self, durable_name: str, subject: Subject, sequence: int) -> int:
        """A message was dealt with; the position then."""
        stored = self._positions.position(durable_name, subject.name)
        if sequence <= stored:
            return stored
        hand = self._hand(durable_name, subject.name)
        hand.acknowledge(sequence)
        position = hand.position
        settled = hand.settled()
        beyond = [] if sequence <= position else [sequence]
        await self._positions.acknowledge_beyond(durable_name, subject.name, position, beyond, settled)
        hand.acknowledged.difference_update(settled)
        return self._positions.position(durable_name, subject.name)

    def _hand(self, durable_name: str, subject: str) -> Hand:
        found = self._hands.get((durable_name, subject))
        if found is None:
            acknowledged = set(self._positions.acknowledged_beyond(durable_name, subject))
            found = Hand(self._positions.position(durable_name, subject), acknowledged)
            self._hands[durable_name, subject] = found
        return found

    async def _overdue(
        self, hand: Hand, durable_name: str, subject: Subject, rule: DeliveryRule, limit: int
    ) -> list[StreamMessage]:
        found: list[StreamMessage] = []
        now = self._clock.monotonic()
        for sequence, handed in hand.overdue(now):
            if len(found) >= limit:
                break
            message = await self._reader.by_sequence(sequence)
            if message is None:  # its time is over
                await self.acknowledge(durable_name, subject, sequence)
            elif rule.tries_max and handed.tries >= rule.tries_max:
                if rule.dead_letter:
                    await self._dead_letter(rule.dead_letter, message, durable_name, handed.tries)
                await self.acknowledge(durable_name, subject, sequence)
                self._probe.dead_lettered += 1
            elif sequence in hand.out:  # not acknowledged while it was read
                hand.out[sequence] = Handed(now + rule.ack_wait_s, handed.tries + 1)
                self._probe.redelivered += 1
                found.append(message)
        return found
