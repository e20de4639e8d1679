"""How the buffers of a value are laid out in blobs."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.blob import Buffer, Content, Vector

DATA_BLOB_MAX = 8 << 20
VECTOR_BYTES = 1 << 20  # at which a blob made of several buffers is large enough


def blob_contents(buffers: tuple[Buffer, ...]) -> Iterator[Content]:
    """The contents of blobs that hold these buffers, one after another: several small ones in each, a huge one in several."""
    gathered: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if gathered and (size >= VECTOR_BYTES or size + len(buffer) > DATA_BLOB_MAX):
            yield _content(gathered)
            gathered, size = [], 0
        if len(buffer) > DATA_BLOB_MAX:
            view = memoryview(buffer)
            yield from (view[begin : begin + DATA_BLOB_MAX] for begin in range(0, len(view), DATA_BLOB_MAX))
        elif buffer:
            gathered.append(buffer)
            size += len(buffer)
    if gathered:
        yield _content(gathered)


def _content(buffers: list[Buffer]) -> Content:
    return buffers[0] if len(buffers) == 1 else Vector(buffers)
