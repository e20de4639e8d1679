"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changes; replies name only what has changed.

Pure. A session is known by its id, and its requests are numbered: one that is out of turn is refused, and the client starts over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from penstock.kafka.protocol import errors
from penstock.kernels.fetch_frame import FetchFrame
from penstock.kernels.fetched_partition import FetchedPartition

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
ID_MAX = EPOCH_MAX = 2**31 - 1

TopicRef = bytes | str  # the id of a topic, or its name in versions that have no ids
Key = tuple[TopicRef, int]


class FetchSession:
    """The partitions of one session in the order in which they are looked at, and the number of its next request."""

    def __init__(self, session_id: int, parts: Iterable[FetchedPartition]) -> None:
        self.id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.used_at = 0.0
        self.partitions: dict[Key, FetchedPartition] = {part.key: part for part in parts}

    def change(self, parts: Iterable[FetchedPartition], forgotten: Iterable[Key]) -> None:
        """Applies the partitions that a request adds, changes and removes."""
        for key in forgotten:
            self.partitions.pop(key, None)
        for part in parts:
            known = self.partitions.get(part.key)
            if known is None:
                self.partitions[part.key] = part
            else:
                known.change(part)

    def rotate(self, served: Iterable[Key]) -> None:
        """Moves the partitions that returned records to the end, so that none is starved."""
        for key in served:
            if key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)

    def parts(self) -> list[FetchedPartition]:
        """Returns its partitions for one request."""
        return [part.copy() for part in self.partitions.values()]


class FetchSessions:
    """The sessions of a node, up to a number of them."""

    def __init__(self, sessions_max: int, idle_s: float) -> None:
        self._sessions_max = sessions_max
        self._idle_s = idle_s
        self._next_id = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the one unused for longest comes first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchFrame, now: float) -> tuple[int, FetchSession | None, list[FetchedPartition]]:
        """Returns an error code, the session of the request if it has one, and the partitions to fetch."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = None
            if request.session_epoch == INITIAL_EPOCH and request.parts:
                session = self._create(request.parts, now)
            return errors.NONE, session, request.parts if session is None else session.parts()
        session = self._sessions.get(request.session_id)
        if session is None:
            return errors.FETCH_SESSION_ID_NOT_FOUND, None, []
        if session.epoch != request.session_epoch:
            return errors.INVALID_FETCH_SESSION_EPOCH, None, []
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.used_at = now
        self._sessions.move_to_end(session.id)
        session.change(request.parts, request.forgotten)
        return errors.NONE, session, session.parts()

    def drop(self, session: FetchSession) -> None:
        """Deletes a session."""
        self._sessions.pop(session.id, None)

    def _create(self, parts: list[FetchedPartition], now: float) -> FetchSession | None:
        """Creates a session. Returns None if all slots are in use: the client then sends full requests."""
        if len(self._sessions) >= self._sessions_max:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < self._idle_s:
                return None
            del self._sessions[oldest.id]
        self._next_id = self._next_id % ID_MAX + 1
        while self._next_id in self._sessions:
            self._next_id = self._next_id % ID_MAX + 1
        session = FetchSession(self._next_id, parts)
        session.used_at = now
        self._sessions[session.id] = session
        return session
