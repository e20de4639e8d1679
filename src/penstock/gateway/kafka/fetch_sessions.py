"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changes; replies name only what has changed.

Pure. A session is known by its id, and its requests are numbered: one that is out of turn is refused, and the client starts over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from penstock.kafka.protocol import errors
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
ID_MAX = EPOCH_MAX = 2**31 - 1

TopicRef = bytes | str  # the id of a topic, or its name in versions that have no ids
Key = tuple[TopicRef, int]


class SessionPartition:
    """A partition of a session: what the client asked for, and the offsets that it was sent last."""

    __slots__ = ("last_sent", "request", "topic")

    def __init__(self, topic: TopicRef, request: FetchPartition) -> None:
        self.topic = topic
        self.request = request
        self.last_sent: tuple[int, int, int] | None = None

    def is_news(self, data: PartitionData) -> bool:
        """Returns whether an incremental reply must include the partition, and remembers what it sends."""
        offsets = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
        is_news = (
            offsets != self.last_sent or data.error_code != errors.NONE or bool(data.records) or data.diverging_epoch is not None
        )
        self.last_sent = None if data.error_code != errors.NONE else offsets
        return is_news


class FetchSession:
    """The partitions of one session in the order in which they are looked at, and the number of its next request."""

    def __init__(self, session_id: int, wanted: Iterable[SessionPartition]) -> None:
        self.id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.used_at = 0.0
        self.partitions: dict[Key, SessionPartition] = {(part.topic, part.request.partition): part for part in wanted}

    def change(self, topics: list[FetchTopic], forgotten: list[ForgottenTopic]) -> None:
        """Applies the partitions that a request adds, changes and removes."""
        for removed in forgotten:
            for number in removed.partitions:
                self.partitions.pop((_topic_ref(removed), number), None)
        for topic in topics:
            ref = _topic_ref(topic)
            for partition in topic.partitions:
                known = self.partitions.get((ref, partition.partition))
                if known is None:
                    self.partitions[ref, partition.partition] = SessionPartition(ref, partition)
                else:
                    known.request = partition

    def rotate(self, served: Iterable[SessionPartition]) -> None:
        """Moves the partitions that returned records to the end, so that none is starved."""
        for partition in served:
            key = (partition.topic, partition.request.partition)
            if key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """The sessions of a node, up to a number of them."""

    def __init__(self, sessions_max: int, idle_s: float) -> None:
        self._sessions_max = sessions_max
        self._idle_s = idle_s
        self._next_id = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the one unused for longest comes first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, now: float) -> tuple[int, FetchSession | None, list[SessionPartition]]:
        """Returns an error code, the session of the request if it has one, and the partitions to fetch."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            wanted = [
                SessionPartition(_topic_ref(topic), requested) for topic in request.topics for requested in topic.partitions
            ]
            session = None
            if request.session_epoch == INITIAL_EPOCH and wanted:
                session = self._create(wanted, now)
            return errors.NONE, session, wanted
        session = self._sessions.get(request.session_id)
        if session is None:
            return errors.FETCH_SESSION_ID_NOT_FOUND, None, []
        if session.epoch != request.session_epoch:
            return errors.INVALID_FETCH_SESSION_EPOCH, None, []
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.used_at = now
        self._sessions.move_to_end(session.id)
        session.change(request.topics, request.forgotten_topics_data)
        return errors.NONE, session, list(session.partitions.values())

    def drop(self, session: FetchSession) -> None:
        """Deletes a session."""
        self._sessions.pop(session.id, None)

    def _create(self, wanted: list[SessionPartition], now: float) -> FetchSession | None:
        """Creates a session. Returns None if all slots are in use: the client then sends full requests."""
        if len(self._sessions) >= self._sessions_max:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < self._idle_s:
                return None
            del self._sessions[oldest.id]
        self._next_id = self._next_id % ID_MAX + 1
        while self._next_id in self._sessions:
            self._next_id = self._next_id % ID_MAX + 1
        session = FetchSession(self._next_id, wanted)
        session.used_at = now
        self._sessions[session.id] = session
        return session


def _topic_ref(topic: FetchTopic | ForgottenTopic) -> TopicRef:
    """Versions with ids have no names, and the other way round."""
    return topic.topic or topic.topic_id
