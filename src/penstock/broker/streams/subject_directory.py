"""Looks up subjects by name or pattern, and creates them where the caller wants that.

A topic becomes a subject when it is first named here. A reader sees every message that was durable when it asked, also those
written over another protocol: it waits until they have their sequence numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.broker.errors import (
    PartitionDamagedError,
    PartitionElsewhereError,
    PartitionUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.broker.streams.errors import InvalidSubjectError
from penstock.broker.streams.sequencer import Sequencer, Subject
from penstock.broker.streams.subject_patterns import check_pattern, check_subject, matches
from penstock.broker.topic import Topic
from penstock.broker.topic_config import TopicConfig

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.route import Route

SUBJECT_BATCH_BYTES_MAX: Final = (2 << 20) + (64 << 10)
SUBJECTS_A_TURN: Final = 1000
START_WAIT_S: Final = 5.0
START_PAUSE_S: Final = 0.02

T = TypeVar("T")


class SubjectDirectory:
    """The subjects of a broker and the logs they are in."""

    def __init__(self, broker: Broker, sequencer: Sequencer, ttl_s: float | None) -> None:
        self._broker = broker
        self._sequencer = sequencer
        self._ttl_s = ttl_s  # of subjects that are made here; None: for ever

    async def subject(self, name: str, *, make: bool = False) -> Subject:
        """A subject by name. Creates its topic if the caller allows it; raises UnknownTopicError otherwise."""
        subject = self.at_hand(name)
        if subject is not None:
            return subject
        check_subject(name)
        try:
            topic = self._broker.catalog.topic(name)
        except UnknownTopicError:
            if not make or not self._broker.options.auto_create_topics:
                raise
            topic = await self._make_topic(name)
        if topic.partitions != 1:
            raise InvalidSubjectError(f"topic {name!r} has {topic.partitions} partitions; a subject is a topic with one")
        return await self._sequencer.attach(topic)

    async def complete(self, name: str) -> Subject:
        """A subject by name, once its log is served and fully numbered. Raises UnknownTopicError if there is none."""
        subject = await self.subject(name)
        await once_there(lambda: self._sequencer.partition_of(subject))
        await self._sequencer.number_all(subject)
        return self.at_hand(name) or subject  # its tablet may have been started again meanwhile

    async def matching(self, pattern: str) -> list[Subject]:
        """The subjects that match a pattern, fully numbered; matching topics with one partition become subjects."""
        check_pattern(pattern)
        names = [topic.name for topic in self._broker.catalog.topics() if topic.partitions == 1 and matches(pattern, topic.name)]
        subjects: list[Subject] = []
        for at, name in enumerate(names):
            if at % SUBJECTS_A_TURN == SUBJECTS_A_TURN - 1:
                await asyncio.sleep(0)  # most need no wait, and others are served in between
            try:
                subjects.append(await self.complete(name))
            except UnknownTopicError:
                continue  # deleted while others were looked at
        return subjects

    def names(self) -> list[str]:
        """The names of all subjects."""
        return sorted(name for name, subject in self._sequencer.subjects.items() if self.is_current(subject))

    def at_hand(self, name: str) -> Subject | None:
        """An existing subject; the common case."""
        subject = self._sequencer.subjects.get(name)
        return subject if subject is not None and self.is_current(subject) else None

    async def place(self, name: str) -> tuple[Subject, Route]:
        """A subject, created if necessary, and its log."""
        return await self.subject(name, make=True), await self.route(name)

    def place_at_hand(self, name: str) -> tuple[Subject, Route] | None:
        """The same without creating or waiting; the common case."""
        subject = self._sequencer.subjects.get(name)
        if subject is None:
            return None
        try:
            route = self._broker.route(subject.topic_key, 0)
        except (PartitionUnavailableError, UnknownTopicError):
            return None
        return subject, route

    async def route(self, name: str) -> Route:
        """The log to write to. Waits for a topic that is being created or whose tablet is restarting."""
        return await once_there(lambda: self._broker.route(name, 0))

    def is_current(self, subject: Subject) -> bool:
        """Whether the topic of a subject is still there."""
        try:
            return self._broker.catalog.topic(subject.name).id == subject.topic_id
        except UnknownTopicError:
            return False

    async def _make_topic(self, name: str) -> Topic:
        retention_ms = "-1" if self._ttl_s is None else str(max(int(self._ttl_s * 1000), 1))
        config = TopicConfig({"retention.ms": retention_ms, "max.message.bytes": str(SUBJECT_BATCH_BYTES_MAX)})
        try:
            return await self._broker.create_topic(name, 1, config)
        except TopicExistsError:
            return self._broker.catalog.topic(name)


async def once_there(look: Callable[[], T]) -> T:
    """What `look` finds, once the partitions it needs are served."""
    for _ in range(int(START_WAIT_S / START_PAUSE_S)):
        try:
            return look()
        except PartitionDamagedError:
            raise  # it does not come back by itself
        except PartitionElsewhereError as error:
            if error.node_id is not None:
                raise
            await asyncio.sleep(START_PAUSE_S)
        except PartitionUnavailableError:
            await asyncio.sleep(START_PAUSE_S)
    return look()
