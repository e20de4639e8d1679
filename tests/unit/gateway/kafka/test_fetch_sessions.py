"""The table of fetch sessions: bounded, and each session in turn."""

from __future__ import annotations

from penstock.gateway.kafka.fetch_sessions import FetchSession, FetchSessions
from penstock.kafka.protocol import errors
from penstock.kernels.fetch_frame import FetchFrame
from penstock.kernels.fetched_partition import FetchedPartition

IDLE_S = 100.0


def request(session_id: int = 0, epoch: int = 0, partitions: tuple[int, ...] = (0,), offset: int = 0) -> FetchFrame:
    frame = FetchFrame()
    frame.begin()
    frame.session_id, frame.session_epoch = session_id, epoch
    frame.parts = [FetchedPartition("t", number, offset) for number in partitions]
    return frame


def opened(sessions: FetchSessions, now: float = 0.0) -> FetchSession:
    code, session, _ = sessions.open(request(), now)
    assert code == errors.NONE
    assert session is not None
    return session


def test_a_full_table_makes_no_more_sessions() -> None:
    sessions = FetchSessions(2, IDLE_S)
    first, second = opened(sessions), opened(sessions)
    assert first.id != second.id
    code, none, wanted = sessions.open(request(), 1.0)
    assert (code, none, len(wanted)) == (errors.NONE, None, 1)


def test_an_idle_session_gives_way() -> None:
    sessions = FetchSessions(2, IDLE_S)
    first, second = opened(sessions), opened(sessions)
    sessions.open(request(first.id, 1, ()), 50.0)
    assert opened(sessions, now=120.0).id not in (first.id, second.id)
    assert sessions.open(request(second.id, 1, ()), 120.0)[0] == errors.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(request(first.id, 2, ()), 120.0)[0] == errors.NONE


def test_numbers_start_over_after_the_largest() -> None:
    sessions = FetchSessions(2, IDLE_S)
    session = opened(sessions)
    session.epoch = 2**31 - 1
    assert sessions.open(request(session.id, 2**31 - 1, ()), 0.0)[0] == errors.NONE
    assert session.epoch == 1


def test_a_session_is_not_made_for_nothing() -> None:
    sessions = FetchSessions(2, IDLE_S)
    assert sessions.open(request(partitions=()), 0.0) == (errors.NONE, None, [])
    assert len(sessions) == 0


def test_what_was_served_is_looked_at_last() -> None:
    session = opened(FetchSessions(2, IDLE_S))
    session.change(request(partitions=(1, 2)).parts, [])
    session.rotate([("t", 0)])
    assert [number for _, number in session.partitions] == [1, 2, 0]


def test_requests_of_a_session_do_not_share_what_they_read() -> None:
    sessions = FetchSessions(2, IDLE_S)
    session = opened(sessions)
    _, _, first = sessions.open(request(session.id, 1, ()), 0.0)
    first[0].fill([b"records"], 7)
    _, _, second = sessions.open(request(session.id, 2, offset=5), 0.0)
    assert (first[0].offset, first[0].size) == (0, 7)
    assert (second[0].offset, second[0].size) == (5, 0)


def test_a_partition_that_is_removed_is_fetched_no_more() -> None:
    sessions = FetchSessions(2, IDLE_S)
    _, session, _ = sessions.open(request(partitions=(0, 1)), 0.0)
    assert session is not None
    change = request(session.id, 1, ())
    change.forgotten = [("t", 0)]
    assert [part.index for part in sessions.open(change, 0.0)[2]] == [1]
