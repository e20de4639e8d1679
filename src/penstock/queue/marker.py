"""The control batch that ends a transaction in a partition: one record that says commit or abort, and who decided it.

record key:    version 2 (0) | type 2 (0 abort, 1 commit)
record value:  version 2 (0) | epoch of the coordinator 4
"""

from __future__ import annotations

from struct import Struct

from penstock.core.checksum import crc32c
from penstock.queue.batch import CONTROL, MAGIC, TRANSACTIONAL
from penstock.queue.sources import MARKER, SourceWrite

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_BEFORE_CHECKSUM = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii")

# Length, attributes, timestamp delta, offset delta, length of the key; then the key, length of the value, the value, no headers.
# All numbers are small: one byte each, doubled since the lowest bit is the sign.
_RECORD_LENGTH = 3 + 1 + _KEY.size + 1 + _VALUE.size + 1
_RECORD_START = bytes((_RECORD_LENGTH << 1, 0, 0, 0, _KEY.size << 1))


def make_marker(*, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int) -> bytes:
    """The marker of a producer's transaction."""
    record = b"".join(
        (
            _RECORD_START,
            _KEY.pack(0, int(commit)),
            bytes((_VALUE.size << 1,)),
            _VALUE.pack(0, coordinator_epoch),
            b"\0",
        )
    )
    checked = _CHECKED.pack(TRANSACTIONAL | CONTROL, 0, now_ms, now_ms, producer_id, producer_epoch, -1, 1) + record
    length = _BEFORE_CHECKSUM.size - 12 + len(checked)
    return _BEFORE_CHECKSUM.pack(0, length, 0, MAGIC, crc32c(checked)) + checked


def marker_source(source: bytes, producer_epoch: int) -> SourceWrite:
    """Whose marker it is: from then on the partition takes nothing of the producer's older epochs."""
    return SourceWrite(source, MARKER, producer_epoch, contiguous=True)
