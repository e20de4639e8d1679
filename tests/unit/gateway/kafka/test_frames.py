"""Frames out of a stream, however it is cut; compiled and as plain Python."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import frame_reader
from penstock.kernels.frame_reader import AT_ONCE_MAX, BUFFER_FIRST, BUFFER_MAX, FrameReader, FrameTooLargeError
from tests.kernel_forms import uncompiled

PLAIN = uncompiled("frame_reader")
vars(PLAIN)["FrameTooLargeError"] = FrameTooLargeError  # its error is a class of its own; callers know that of the package


@pytest.fixture(params=[frame_reader, PLAIN], ids=["as installed", "uncompiled"])
def reader(request: pytest.FixtureRequest) -> FrameReader:
    found: FrameReader = request.param.FrameReader(1 << 30)
    return found


def framed(content: bytes) -> bytes:
    return pack(">i", len(content)) + content


def receive(reader: FrameReader, data: bytes, step: int, *, is_shared: bool = True) -> list[memoryview]:
    """Give bytes to a reader, at most `step` at a time; the frames it finds, which are copies unless they are shared."""
    found: list[memoryview] = []
    at = 0
    while at < len(data):
        space = reader.space()
        count = min(len(space), step, len(data) - at)
        assert count > 0
        space[:count] = data[at : at + count]
        reader.received(count)
        at += count
        while reader.find():
            found.append(reader.frame() if is_shared else memoryview(bytes(reader.buffer[reader.begin : reader.end])))
            reader.take(is_shared)
    return found


@given(
    contents=st.lists(st.binary(min_size=1, max_size=40_000), max_size=8),
    step=st.sampled_from([1, 3, 100, 5_000, 1_000_000]),
    is_shared=st.booleans(),
)
def test_frames_come_out_as_they_went_in(contents: list[bytes], step: int, is_shared: bool) -> None:
    stream = b"".join(framed(content) for content in contents)
    for module in (frame_reader, PLAIN):
        found = receive(module.FrameReader(1 << 20), stream, max(step, len(stream) // 500), is_shared=is_shared)
        assert [bytes(frame) for frame in found] == contents


def test_a_shared_frame_stays_as_it_is_while_others_are_received(reader: FrameReader) -> None:
    (first,) = receive(reader, framed(b"first"), 100)
    receive(reader, framed(b"other"), 100, is_shared=False)
    receive(reader, framed(bytes(100_000)) * 30, 64 << 10)
    assert bytes(first) == b"first"


def test_the_buffer_is_used_again_if_no_frame_is_shared(reader: FrameReader) -> None:
    receive(reader, framed(b"first"), 100, is_shared=False)
    buffer = reader.buffer
    for number in range(1, 2000):
        # In two parts, so that frames are moved to the front as well.
        receive(reader, framed(b"%d" % number * 20)[:30], 1000, is_shared=False)
        receive(reader, framed(b"%d" % number * 20)[30:], 1000, is_shared=False)
    assert reader.buffer is buffer
    assert reader.capacity == BUFFER_FIRST


def test_the_buffer_of_a_large_frame_is_not_kept(reader: FrameReader) -> None:
    receive(reader, framed(bytes(BUFFER_MAX * 2)), 1 << 20, is_shared=False)
    reader.space()
    assert reader.capacity <= BUFFER_MAX


@pytest.mark.parametrize("size", [0, -1, 101, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused(reader: FrameReader, size: int) -> None:
    reader.allow(100)
    reader.space()[:4] = pack(">i", size)
    reader.received(4)
    with pytest.raises(FrameTooLargeError):
        reader.find()


@pytest.mark.parametrize(("content", "key"), [(b"\x00\x12rest", 18), (b"\xff\xfe", -2), (b"\x00", -1)])
def test_the_api_key_of_a_frame_is_told(reader: FrameReader, content: bytes, key: int) -> None:
    reader.space()[: 4 + len(content)] = framed(content)
    reader.received(4 + len(content))
    assert reader.find()
    assert reader.api_key == key


def test_a_mere_size_takes_little_memory(reader: FrameReader) -> None:
    reader.space()[:4] = pack(">i", 1 << 30)
    reader.received(4)
    assert len(reader.space()) <= AT_ONCE_MAX


def test_a_huge_frame_is_received_whole(reader: FrameReader) -> None:
    content = bytes(range(256)) * (3 * AT_ONCE_MAX // 256)
    (found,) = receive(reader, framed(content), 1 << 20)
    assert found == content


def test_a_quiet_reader_holds_nothing(reader: FrameReader) -> None:
    receive(reader, framed(bytes(500_000)), 1 << 20)
    reader.release()
    assert reader.capacity == 0
    (again,) = receive(reader, framed(b"again"), 10)
    assert bytes(again) == b"again"
    assert reader.capacity <= BUFFER_MAX
