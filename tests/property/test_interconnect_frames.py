"""Frames of the interconnect: the other side gets what was sent, in whatever portions it arrives, and damage is noticed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import SystemClock
from penstock.interconnect.errors import PeerRefusedError, ProtocolError
from penstock.interconnect.frames import (
    CALL,
    CANCEL,
    HEADER_BYTES,
    PIECE_BYTES_MAX,
    PING,
    PONG,
    REPLY,
    SUMMED,
    WHOLE_BYTES_MAX,
    Frame,
    FrameReader,
)
from penstock.interconnect.hello import Admission, Hello, NodeIdentity, Peer, Role
from penstock.interconnect.outbox import Outbox
from penstock.interconnect.session import Session
from penstock.interconnect.status import Buffer

BODY_MAX = 1 << 20
SIZES = st.one_of(
    st.integers(0, 300),
    st.sampled_from([size + more for size in (WHOLE_BYTES_MAX, PIECE_BYTES_MAX) for more in (-1, 0, 1)]),
    st.just(3 * PIECE_BYTES_MAX),
)
PORTIONS = st.lists(st.sampled_from([1, 7, 39, 40, 41, 1000, 9000, 65536, 200_000]), min_size=1, max_size=5)


def feed(reader: FrameReader | Session, data: bytes, portions: list[int]) -> list[Frame]:
    """Let bytes arrive in portions of these sizes and a large one, over and over."""
    frames: list[Frame] = []
    portions = [*portions, 50_000]
    at = turn = 0
    while at < len(data):
        space = reader.space()
        count = min(portions[turn % len(portions)], len(space), len(data) - at)
        space[:count] = data[at : at + count]
        frames += reader.received(count)
        at += count
        turn += 1
    return frames


def written(outbox: Outbox, limit: int) -> bytes:
    """All that an outbox has, taken in steps."""
    found = bytearray()
    while outbox:
        buffers, size = outbox.take(limit)
        data = b"".join(bytes(buffer) for buffer in buffers)
        assert len(data) == size
        found += data
    assert outbox.bytes == 0
    return bytes(found)


def content(call: int, size: int) -> bytes:
    return Random(call).randbytes(size)


def in_parts(data: bytes, cut: int) -> tuple[Buffer, ...]:
    return (data[:cut], memoryview(data)[cut:])


@given(
    sizes=st.lists(SIZES, max_size=8),
    cut=st.integers(0, 100_000),
    limit=st.integers(1, 300_000),
    portions=PORTIONS,
    secured=st.booleans(),
    flags=st.sampled_from([0, SUMMED]),
)
def test_bodies_of_any_size_arrive_whole(
    sizes: list[int], cut: int, limit: int, portions: list[int], *, secured: bool, flags: int
) -> None:
    outbox = Outbox(checked=not secured)
    for call, size in enumerate(sizes):
        outbox.add_call(
            call,
            call,
            in_parts(content(call, size), cut),
            size,
            destination=7,
            timeout_ms=5,
            sent_ms=call,
            reply_bytes=8,
            flags=flags,
        )
    reader = FrameReader(lambda *_: True, checked=not secured, body_bytes_max=BODY_MAX)
    frames = feed(reader, written(outbox, limit), portions)
    assert sorted(frame.call for frame in frames) == list(range(len(sizes)))
    for frame in frames:
        assert frame[:7] == (CALL, frame.call, frame.call, 7, 5, frame.call, 8)
        assert bytes(frame.body) == content(frame.call, sizes[frame.call])


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=5),
    refused=st.sets(st.integers(0, 4)),
    dropped=st.sets(st.integers(0, 4)),
    portions=PORTIONS,
)
def test_a_body_that_is_refused_or_dropped_does_not_disturb_others(
    sizes: list[int], refused: set[int], dropped: set[int], portions: list[int]
) -> None:
    outbox = Outbox(checked=True)
    for call, size in enumerate(sizes):
        outbox.add(REPLY, 0, call, (content(call, size),))
    buffers, _ = outbox.take(1)
    for call in dropped:
        outbox.drop(call)
    data = b"".join(bytes(buffer) for buffer in buffers) + written(outbox, 1 << 20)
    asked: list[tuple[int, int]] = []

    def admit(frame: Frame, total: int) -> bool:
        asked.append((frame.call, total))
        return frame.call not in refused

    frames = feed(FrameReader(admit, checked=True, body_bytes_max=BODY_MAX), data, portions)
    got = {frame.call: bytes(frame.body) for frame in frames}
    was_asked = {call for call, _ in asked}
    large = [call for call, size in enumerate(sizes) if size > WHOLE_BYTES_MAX]
    sent = {call for call in large[:1] if sizes[call] <= PIECE_BYTES_MAX}  # in one piece, before any was dropped
    for call, size in enumerate(sizes):
        is_dropped = call in dropped and call in large and call not in sent
        assert call not in large or is_dropped or (call, size) in asked
        if (call in refused and call in was_asked) or is_dropped:
            assert call not in got
        else:
            assert got[call] == content(call, size)


def test_a_piece_and_the_header_behind_it_take_one_read() -> None:
    outbox = Outbox(checked=True)
    for call in range(2):
        outbox.add_call(1, call, (content(call, 3 * PIECE_BYTES_MAX),), 3 * PIECE_BYTES_MAX)
    data = written(outbox, 1)
    reader = FrameReader(lambda *_: True, checked=True, body_bytes_max=BODY_MAX)
    at = reads = 0
    while at < len(data):
        space = reader.space()
        count = min(len(space), len(data) - at)
        space[:count] = data[at : at + count]
        reader.received(count)
        at += count
        reads += 1
    assert reads == 1 + 6  # the first brings a header and the beginning of its piece


@given(size=SIZES, bit=st.integers(0, 8 * HEADER_BYTES - 1), portions=PORTIONS)
def test_the_header_of_a_body_with_checksums_of_its_own_is_checked(size: int, bit: int, portions: list[int]) -> None:
    outbox = Outbox(checked=True)
    outbox.add_call(1, 1, (content(1, size),), size, flags=SUMMED)
    data = bytearray(written(outbox, 1 << 20))
    data[bit // 8] ^= 1 << bit % 8
    reader = FrameReader(lambda *_: True, checked=True, body_bytes_max=BODY_MAX)
    try:
        frames = feed(reader, bytes(data), portions)
    except ProtocolError:
        return
    assert frames == []  # a length that is damaged may only mean that the rest of a frame is waited for


@given(size=SIZES, at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), portions=PORTIONS)
def test_no_damaged_frame_is_returned(size: int, at: float, bit: int, portions: list[int]) -> None:
    outbox = Outbox(checked=True)
    outbox.add_call(1, 1, (content(1, size),), size)
    outbox.add(PING, call=2)
    data = bytearray(written(outbox, 1 << 20))
    data[int(at * len(data))] ^= 1 << bit
    reader = FrameReader(lambda *_: True, checked=True, body_bytes_max=BODY_MAX)
    try:
        frames = feed(reader, bytes(data), portions)
    except ProtocolError:
        return
    # A length that is damaged may only mean that the rest of a frame is waited for.
    for frame in frames:
        assert bytes(frame.body) == (content(1, size) if frame.kind == CALL else b"")


@given(st.binary(max_size=3000), PORTIONS)
def test_strange_bytes_keep_a_session_small(data: bytes, portions: list[int]) -> None:
    _, acceptor = sessions()
    try:
        feed(acceptor, data, portions)
    except (ProtocolError, PeerRefusedError):
        return
    assert acceptor.peer is None
    assert len(acceptor.space()) <= HEADER_BYTES + 512


def sessions(checked: bool = True) -> tuple[Session, Session]:
    """Two nodes before their hellos."""
    first = Admission(NodeIdentity(b"c" * 16, 1, 100), SystemClock(), 60)
    second = Admission(NodeIdentity(b"c" * 16, 2, 100), SystemClock(), 60)

    def answer(hello: Hello) -> tuple[Peer, Hello]:
        return second.admit(hello), second.hello(hello.role, hello.session)

    dialer = Session.dialing(
        first.hello(Role.CALLS, 5, 2),
        lambda hello: first.admit(hello, expected_node_id=2),
        lambda *_: True,
        checked=checked,
        body_bytes_max=BODY_MAX,
    )
    return dialer, Session.accepting(answer, lambda *_: True, checked=checked, body_bytes_max=BODY_MAX)


@given(
    sizes=st.lists(SIZES, max_size=5), order=st.randoms(use_true_random=False), limit=st.integers(1, 300_000), portions=PORTIONS
)
def test_two_sessions_exchange_calls_and_replies_in_any_order(
    sizes: list[int], order: Random, limit: int, portions: list[int]
) -> None:
    dialer, acceptor = sessions()
    assert not feed(acceptor, written(dialer.outbox, limit), portions)
    assert not feed(dialer, written(acceptor.outbox, limit), portions)
    assert dialer.peer is not None
    assert acceptor.peer is not None
    assert (dialer.peer.identity.node_id, acceptor.peer.identity.node_id) == (2, 1)
    for call, size in enumerate(sizes):
        dialer.outbox.add_call(9, call, (content(call, size),), size, destination=call, timeout_ms=1, sent_ms=1)
    dialer.outbox.add(PING, call=99)
    calls = feed(acceptor, written(dialer.outbox, limit), portions)
    order.shuffle(calls)
    for frame in calls:
        acceptor.outbox.add(PONG if frame.kind == PING else REPLY, 0, frame.call, () if frame.kind == PING else (frame.body,))
    replies = feed(dialer, written(acceptor.outbox, limit), portions)
    assert {frame.call: bytes(frame.body) for frame in replies} == {
        99: b"",
        **{call: content(call, size) for call, size in enumerate(sizes)},
    }


@pytest.mark.parametrize("kind", [REPLY, PONG, CALL, CANCEL])
def test_a_frame_before_the_hello_or_from_the_wrong_side_ends_the_session(kind: int) -> None:
    stranger = Outbox(checked=True)
    stranger.add(kind)
    data = written(stranger, 1000)
    dialer, acceptor = sessions()
    with pytest.raises(ProtocolError, match="not expected"):
        feed(acceptor, data, [1000])
    dialer, acceptor = sessions()
    feed(acceptor, written(dialer.outbox, 1000), [1000])
    if kind in (REPLY, PONG):
        with pytest.raises(ProtocolError, match="not expected"):
            feed(acceptor, data, [1000])
    else:
        assert [frame.kind for frame in feed(acceptor, data, [1000])] == [kind]


def test_small_frames_go_between_the_pieces_of_a_large_body() -> None:
    outbox = Outbox(checked=True)
    outbox.add_call(1, 1, (bytes(1 << 20),), 1 << 20)
    sent = list(outbox.take(128 << 10)[0])
    outbox.add_call(1, 2, (b"small",), 5)
    sent += outbox.take(128 << 10)[0]
    reader = FrameReader(lambda *_: True, checked=True, body_bytes_max=BODY_MAX)
    frames = feed(reader, b"".join(bytes(buffer) for buffer in sent), [1 << 20])
    assert [frame.call for frame in frames] == [2]
    frames = feed(reader, written(outbox, 128 << 10), [1 << 20])
    assert [(frame.call, len(frame.body)) for frame in frames] == [(1, 1 << 20)]


def test_a_body_with_too_many_or_too_few_pieces_is_damage() -> None:
    reader = FrameReader(lambda *_: True, checked=False, body_bytes_max=1000)
    outbox = Outbox(checked=False)
    outbox.add_call(1, 1, (bytes(2000),), 2000)
    with pytest.raises(ProtocolError, match="at most 1000"):
        feed(reader, written(outbox, 1), [3000])
