"""The control batch that ends a transaction in a partition: one record that says commit or abort, and who decided it.

record key:    version 2 (0) | type 2 (0 abort, 1 commit)
record value:  version 2 (0) | epoch of the coordinator 4
"""

from __future__ import annotations

from struct import Struct

from penstock.blob import Buffer
from penstock.core.record_format import CONTROL, TRANSACTIONAL, Writer, framed, packed_record
from penstock.queue.sources import MARKER, SourceWrite

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


def make_marker(*, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int) -> bytes:
    """The marker of a producer's transaction."""
    record = packed_record(0, _VALUE.pack(0, coordinator_epoch), key=_KEY.pack(0, int(commit)))
    writer = Writer(producer_id, producer_epoch)
    return framed(record, 1, (now_ms, now_ms), attributes=TRANSACTIONAL | CONTROL, writer=writer)


def coordinator_epoch_of(marker: Buffer) -> int:
    """The epoch of the coordinator that decided it."""
    epoch: int = _VALUE.unpack_from(marker, len(marker) - 1 - _VALUE.size)[1]  # behind it there is the number of headers
    return epoch


def marker_source(source: bytes, producer_epoch: int) -> SourceWrite:
    """Whose marker it is: from then on the partition takes nothing of the producer's older epochs."""
    return SourceWrite(source, MARKER, producer_epoch, contiguous=True)
