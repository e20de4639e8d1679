"""A topic's own compression: other bytes, the same batch."""

from __future__ import annotations

import pytest

from penstock.core.record_compression import decompress
from penstock.core.record_format import HEADER_SIZE
from penstock.queue import check_batch, plain_records_of, recompressed
from penstock.testing.batches import make_batch

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VALUES = [b"value " * 200, b"", b"another " * 50]
FIELDS = ("messages", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence")


@pytest.mark.parametrize("sent", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("stored", CODECS.values(), ids=CODECS)
def test_only_the_compression_changes(sent: int, stored: int) -> None:
    plain = check_batch(make_batch(VALUES, producer_id=7, producer_epoch=3, base_sequence=11), 1 << 20)
    given = check_batch(recompressed(plain, plain_records_of(plain), sent), 1 << 20)
    made = check_batch(recompressed(given, plain_records_of(given), stored), 1 << 20)
    assert made.codec == stored
    assert [getattr(made, name) for name in FIELDS] == [getattr(plain, name) for name in FIELDS]
    assert bytes(decompress(made.codec, made.data[HEADER_SIZE:])) == bytes(plain.data[HEADER_SIZE:])
    assert (len(made.data) < len(plain.data)) == (stored != CODECS["none"])
