"""Frames out of a stream, however it is cut."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.kafka.frames import AT_ONCE_MAX, BUFFER_MAX, FrameReader, FrameTooLargeError


def framed(content: bytes) -> bytes:
    return pack(">i", len(content)) + content


def receive(reader: FrameReader, data: bytes, step: int) -> list[memoryview]:
    """Give bytes to a reader, at most `step` at a time; the frames it finds."""
    found: list[memoryview] = []
    at = 0
    while at < len(data):
        space = reader.space()
        count = min(len(space), step, len(data) - at)
        assert count > 0
        space[:count] = data[at : at + count]
        reader.received(count)
        at += count
        while (frame := reader.frame()) is not None:
            reader.take()
            found.append(frame)
    return found


@given(contents=st.lists(st.binary(min_size=1, max_size=40_000), max_size=8), step=st.sampled_from([1, 3, 100, 5_000, 1_000_000]))
def test_frames_come_out_as_they_went_in(contents: list[bytes], step: int) -> None:
    stream = b"".join(framed(content) for content in contents)
    found = receive(FrameReader(1 << 20), stream, max(step, len(stream) // 2000))
    assert [bytes(frame) for frame in found] == contents


def test_a_frame_stays_as_it_is_while_others_are_received() -> None:
    reader = FrameReader(1 << 20)
    (first,) = receive(reader, framed(b"first"), 100)
    receive(reader, framed(bytes(100_000)) * 30, 64 << 10)
    assert bytes(first) == b"first"


@pytest.mark.parametrize("size", [0, -1, 101, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    reader = FrameReader(100)
    reader.space()[:4] = pack(">i", size)
    reader.received(4)
    with pytest.raises(FrameTooLargeError):
        reader.frame()


def test_a_mere_size_takes_little_memory() -> None:
    reader = FrameReader(1 << 30)
    reader.space()[:4] = pack(">i", 1 << 30)
    reader.received(4)
    assert len(reader.space()) <= AT_ONCE_MAX


def test_a_huge_frame_is_received_whole() -> None:
    content = bytes(range(256)) * (3 * AT_ONCE_MAX // 256)
    (found,) = receive(FrameReader(1 << 30), framed(content), 1 << 20)
    assert found == content


def test_a_quiet_reader_holds_nothing() -> None:
    reader = FrameReader(1 << 20)
    receive(reader, framed(bytes(500_000)), 1 << 20)
    reader.release()
    assert reader.capacity == 0
    (again,) = receive(reader, framed(b"again"), 10)
    assert bytes(again) == b"again"
    assert reader.capacity <= BUFFER_MAX
