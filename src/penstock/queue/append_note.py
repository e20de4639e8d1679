"""What a log record says of the batches that it appends to a partition, beside their bytes. Pure.

Nearly all that changes with a batch follows from its header: offsets, the producer that wrote it and its sequence, transactions,
the gateway it came by. What does not is said here: batches of other sources than the header tells, as those of YDB's and YT's
writers, and batches of a producer that are stored without one.

     version 1 | first offset 8 | count 2 | sources
     source    number of the batch in the record 4 | 0                                                     none
                                                   | 1 or 2 | epoch 4 | seqno 8 | length 2 | source id    2: contiguous
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from penstock.core.errors import CorruptionError
from penstock.core.format_version import check_version
from penstock.queue.sources import SourceWrite

VERSION = 1

_NOTE = Struct(">BQH")
pack_plain = _NOTE.pack  # with VERSION, the first offset, and 0: of a note without sources
_NUMBER = Struct(">IB")
_SOURCE = Struct(">iqH")
_NONE, _RISING, _CONTIGUOUS = 0, 1, 2

NamedSource = tuple[int, SourceWrite | None]
"""The number of a batch in its record, and the source that wrote it."""


def pack_note(first_offset: int, sources: Sequence[NamedSource] = ()) -> bytes:
    """The stored form of a note."""
    note = _NOTE.pack(VERSION, first_offset, len(sources))
    for number, source in sources:
        if source is None:
            note += _NUMBER.pack(number, _NONE)
        else:
            note += _NUMBER.pack(number, _CONTIGUOUS if source.contiguous else _RISING)
            note += _SOURCE.pack(source.epoch, source.seqno, len(source.source)) + source.source
    return note


def unpack_note(raw: bytes) -> tuple[int, dict[int, SourceWrite | None]]:
    """The first offset of a record, and the sources of batches that their headers do not tell, by number of the batch."""
    check_version(raw[0] if raw else 0, VERSION, "the note of an append")
    if len(raw) < _NOTE.size:
        raise CorruptionError(f"the note of an append has {len(raw)} bytes, not {_NOTE.size} or more")
    _, first_offset, count = _NOTE.unpack_from(raw)
    at = _NOTE.size
    sources: dict[int, SourceWrite | None] = {}
    for _ in range(count):
        number, kind = _NUMBER.unpack_from(raw, at)
        at += _NUMBER.size
        sources[number] = None
        if kind != _NONE:
            epoch, seqno, length = _SOURCE.unpack_from(raw, at)
            at += _SOURCE.size
            sources[number] = SourceWrite(raw[at : at + length], seqno, epoch, contiguous=kind == _CONTIGUOUS)
            at += length
    if at != len(raw):
        raise CorruptionError(f"the note of an append has {len(raw)} bytes, of which {at} are understood")
    return first_offset, sources
