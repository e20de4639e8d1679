"""Delivery of messages to the members of a durable name: each to one member, and again if it is not acknowledged in time.

What is stored is the position, below which all is acknowledged, and single acknowledgements beyond it. Deliveries
in flight, with their deadlines and attempts, are in memory: after a restart what is not acknowledged is delivered again, and
attempts count from one.
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

IN_FLIGHT_MAX: Final = 10_000  # not acknowledged, for each durable name and subject

DeadLetter = Callable[[str, StreamMessage, str, int], Awaitable[None]]


class Delivery(NamedTuple):
    """A message in flight: its deadline, and how often it was delivered."""

    deadline: float
    tries: int


class SubjectDeliveries:
    """The deliveries in flight of one subject to one durable name. Pure."""

    def __init__(self, position: int, acknowledged: set[int]) -> None:
        self.in_flight: dict[int, Delivery] = {}  # by sequence, in order: a redelivery keeps its place
        self.acknowledged = acknowledged  # beyond the position
        self.next_sequence = position + 1  # everything before it was delivered, or is deleted
        self.changing = asyncio.Lock()

    def overdue(self, now: float) -> list[tuple[int, Delivery]]:
        """Returns deliveries whose deadline has passed."""
        return [(sequence, delivery) for sequence, delivery in self.in_flight.items() if delivery.deadline <= now]

    def acknowledge(self, sequence: int) -> None:
        """Note that a message is acknowledged."""
        self.in_flight.pop(sequence, None)
        self.acknowledged.add(sequence)

    @property
    def position(self) -> int:
        """The sequence up to which all messages are acknowledged or deleted."""
        return next(iter(self.in_flight), self.next_sequence) - 1

    def settled(self) -> list[int]:
        """Returns the single acknowledgements that the position has reached."""
        position = self.position
        return [sequence for sequence in self.acknowledged if sequence <= position]


class DeliveryTracker:
    """The deliveries in flight of every subject, for every durable name with a delivery rule."""

    def __init__(self, positions: Positions, reader: Reader, dead_letter: DeadLetter, clock: Clock, probe: EngineProbe) -> None:
        self._positions = positions
        self._reader = reader
        self._dead_letter = dead_letter
        self._clock = clock
        self._probe = probe
        self._by_subject: dict[tuple[str, str], SubjectDeliveries] = {}

    async def reload(self, _tablet: TableTablet) -> None:
        """Start over after a restart of the tablet: writes that failed may be stored."""
        self._by_subject.clear()

    def forget(self, durable_name: str, subject: str) -> None:
        """Start over from the stored position."""
        self._by_subject.pop((durable_name, subject), None)

    async def take(
        self, durable_name: str, subject: Subject, rule: DeliveryRule, limit: int, bytes_max: int
    ) -> list[StreamMessage]:
        """Returns messages that are not in flight: first those whose deadline has passed, then new ones."""
        deliveries = self._deliveries_of(durable_name, subject.name)
        async with deliveries.changing:
            messages = await self._overdue(deliveries, durable_name, subject, rule, limit)
            size = sum(len(message.data) for message in messages)
            room = min(limit, IN_FLIGHT_MAX - len(deliveries.in_flight))
            while len(messages) < room and (not messages or size < bytes_max):
                read = await self._reader.of_subject(subject, deliveries.next_sequence, room - len(messages), bytes_max - size)
                for message in read.messages:
                    if message.sequence not in deliveries.acknowledged:
                        deliveries.in_flight[message.sequence] = Delivery(self._clock.monotonic() + rule.ack_wait_s, 1)
                        messages.append(message)
                        size += len(message.data)
                if read.next_sequence <= deliveries.next_sequence:
                    break
                deliveries.next_sequence = read.next_sequence
                await asyncio.sleep(0)  # many that are acknowledged already are read from memory without suspending
        return messages

    async def acknowledge(self, durable_name: str, subject: Subject, sequence: int) -> int:
        """Acknowledge a message. Returns the position after it."""
        stored = self._positions.position(durable_name, subject.name)
        if sequence <= stored:
            return stored
        deliveries = self._deliveries_of(durable_name, subject.name)
        deliveries.acknowledge(sequence)
        position = deliveries.position
        settled = deliveries.settled()
        beyond = [] if sequence <= position else [sequence]
        await self._positions.acknowledge_beyond(durable_name, subject.name, position, beyond, settled)
        deliveries.acknowledged.difference_update(settled)
        return self._positions.position(durable_name, subject.name)

    def _deliveries_of(self, durable_name: str, subject: str) -> SubjectDeliveries:
        deliveries = self._by_subject.get((durable_name, subject))
        if deliveries is None:
            acknowledged = set(self._positions.acknowledged_beyond(durable_name, subject))
            deliveries = SubjectDeliveries(self._positions.position(durable_name, subject), acknowledged)
            self._by_subject[durable_name, subject] = deliveries
        return deliveries

    async def _overdue(
        self, deliveries: SubjectDeliveries, durable_name: str, subject: Subject, rule: DeliveryRule, limit: int
    ) -> list[StreamMessage]:
        messages: list[StreamMessage] = []
        now = self._clock.monotonic()
        for sequence, delivery in deliveries.overdue(now):
            if len(messages) >= limit:
                break
            message = await self._reader.by_sequence(sequence)
            if message is None:  # deleted by retention
                await self.acknowledge(durable_name, subject, sequence)
            elif rule.tries_max and delivery.tries >= rule.tries_max:
                if rule.dead_letter:
                    await self._dead_letter(rule.dead_letter, message, durable_name, delivery.tries)
                await self.acknowledge(durable_name, subject, sequence)
                self._probe.dead_lettered += 1
            elif sequence in deliveries.in_flight:  # not acknowledged while it was read
                deliveries.in_flight[sequence] = Delivery(now + rule.ack_wait_s, delivery.tries + 1)
                self._probe.redelivered += 1
                messages.append(message)
        return messages
