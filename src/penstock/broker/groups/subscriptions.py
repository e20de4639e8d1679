"""Tracks which topics the members of a group subscribe to, by name or by pattern, as topics are created and deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.broker.catalog import Catalog
from penstock.broker.groups.consumer_records import Member
from penstock.broker.groups.topic_pattern import InvalidPatternError, TopicPattern
from penstock.broker.internal_topics import INTERNAL_TOPICS

log = logging.getLogger(__name__)


class TopicShape(NamedTuple):
    """A topic as groups see it."""

    id: UUID
    partitions: int


class Topics(NamedTuple):
    """Every topic there is; `version` is another one whenever they change."""

    version: int
    by_name: Mapping[str, TopicShape]


class TopicsOfCatalog:
    """The topics of a catalog, read again only when they have changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._topics = Topics(-1, {})

    def __call__(self) -> Topics:
        """The topics there are now."""
        version = self._catalog.version
        if self._topics.version != version:
            shapes = {topic.name: TopicShape(topic.id, topic.partitions) for topic in self._catalog.topics()}
            self._topics = Topics(version, shapes)
        return self._topics


class Subscriptions:
    """The patterns of one group, compiled, and what they match. Each name is matched once."""

    def __init__(self) -> None:
        self._patterns: dict[str, TopicPattern] = {}
        self._verdicts: dict[str, dict[str, bool]] = {}
        self._names: dict[str, frozenset[str]] = {}  # those that match, of the topics of one version
        self._version: int | None = None

    def check(self, pattern: str, topics: Topics) -> None:
        """InvalidPatternError unless the pattern can be used."""
        if pattern and pattern not in self._patterns:
            compiled = TopicPattern(pattern)
            for name in topics.by_name:
                compiled.matches(name)
            self._patterns[pattern] = compiled

    def topics_of(self, member: Member, topics: Topics) -> frozenset[UUID]:
        """The topics that a member reads, of those that are there."""
        names = member.names | self._matching(member.pattern, topics) if member.pattern else member.names
        return frozenset(topics.by_name[name].id for name in names if name in topics.by_name)

    def retain(self, patterns: set[str]) -> None:
        """Forget all other patterns."""
        for pattern in self._patterns.keys() - patterns:
            del self._patterns[pattern]
            self._verdicts.pop(pattern, None)
            self._names.pop(pattern, None)

    def _matching(self, pattern: str, topics: Topics) -> frozenset[str]:
        if self._version != topics.version:
            self._version = topics.version
            self._names.clear()
        matching = self._names.get(pattern)
        if matching is None:
            compiled = self._patterns.get(pattern)
            if compiled is None:
                compiled = self._patterns[pattern] = TopicPattern(pattern)
            before = self._verdicts.get(pattern, {})
            # A pattern for all topics is not meant for those that the broker keeps for itself.
            names = topics.by_name.keys() - INTERNAL_TOPICS
            verdicts = {name: before[name] if name in before else _matches(compiled, name) for name in names}
            self._verdicts[pattern] = verdicts
            matching = self._names[pattern] = frozenset(name for name, fits in verdicts.items() if fits)
        return matching


def _matches(pattern: TopicPattern, name: str) -> bool:
    try:
        return pattern.matches(name)
    except InvalidPatternError as error:
        # It was taken while this topic was not there; the members keep the others.
        log.warning("topic %s is not subscribed to by a pattern: %s", name, error)
        return False
