"""What Kafka's clients are sent of batches that other gateways have written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.checksum import crc32c
from penstock.core.record_compression import GZIP, NONE, ZSTD, compress_like
from penstock.core.record_format import (
    CRC_FROM,
    FROM_STREAMS,
    FROM_YDB,
    FROM_YT,
    Header,
    framed,
    header_at,
    packed_record,
    read_headers,
)
from penstock.gateway.kafka.own_headers import ReadRequest, read_as_kafka, without_own_headers
from penstock.kernels import header_strip
from penstock.kernels.record_scan import FIELDS, HEADERS_AT, scan_records
from penstock.queue import Partition, joined, scan_batch
from penstock.testing.batches import keyed_records_of, make_batch, make_keyed_batch
from tests.kernel_forms import uncompiled
from tests.sim_tablet import SimNode, on_node

NAMES = st.one_of(st.sampled_from([b"ydb.seqno", b"ydb.", b"ydb", b"penstock.weights", b"penstock.", b""]), st.binary(max_size=9))
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=200)), max_size=5)
RECORDS = st.lists(st.tuples(st.none() | st.binary(max_size=100), st.none() | st.binary(max_size=100), HEADERS), min_size=1)


def _batch(records: list[tuple[bytes | None, bytes | None, list[Header]]], attributes: int, codec: int = NONE) -> bytes:
    raw = b"".join(packed_record(at, value, key=key, headers=headers) for at, (key, value, headers) in enumerate(records))
    if codec:
        raw = compress_like(codec, memoryview(b""), raw)
    return framed(raw, len(records), (5, 5), attributes=attributes | codec, base_offset=1000)


def _headers_of(batch: Any) -> list[list[Header]]:
    scanned = scan_batch(batch)
    assert scanned is not None
    return [read_headers(scanned.records, at) for at in scanned.table[:, HEADERS_AT].tolist()]


@given(RECORDS, st.sampled_from([(FROM_YDB, b"ydb."), (FROM_YT, b"penstock."), (FROM_STREAMS, b"penstock.")]), st.booleans())
def test_records_stay_the_same_but_for_headers_of_their_gateway(
    records: list[tuple[bytes | None, bytes | None, list[Header]]], origin: tuple[int, bytes], is_zipped: bool
) -> None:
    attributes, prefix = origin
    sent = _batch(records, attributes, ZSTD if is_zipped else NONE)
    (made,) = without_own_headers(sent)
    assert keyed_records_of(bytes(made)) == keyed_records_of(sent)  # checksums and counts included
    assert _headers_of(made) == [[one for one in headers if not one[0].startswith(prefix)] for _, _, headers in records]
    before, after = header_at(sent), header_at(made)
    assert after.attributes == before.attributes & 0xFF
    assert after._replace(length=0, checksum=0, attributes=0) == before._replace(length=0, checksum=0, attributes=0)


@given(RECORDS)
def test_the_kernel_does_the_same_uncompiled(records: list[tuple[bytes | None, bytes | None, list[Header]]]) -> None:
    raw = _batch(records, FROM_YDB)[61:]
    table = np.empty((len(records), FIELDS), np.int64)
    scan_records(raw, table)
    made: list[bytes] = []
    for module in (header_strip, uncompiled("header_strip")):
        out = np.zeros(len(raw), np.uint8).data
        made.append(bytes(out[: module.strip_headers(memoryview(raw), table, b"ydb.", out)]))
    assert made[0] == made[1]


def test_batches_of_kafka_and_damaged_ones_are_sent_as_they_are() -> None:
    own: list[Header] = [(b"ydb.seqno", b"1")]
    plain = _batch([(None, b"a", own)], 0)
    marker_like = make_batch([b"x"], attributes=FROM_YDB | 0x20)
    broken = bytearray(_batch([(None, b"a", own)], FROM_YDB, GZIP))
    broken[-5:] = b"wrong"
    broken[17:21] = crc32c(memoryview(broken)[CRC_FROM:]).to_bytes(4, "big")
    longer = framed(packed_record(0, b"a", headers=own)[:-2] + b"\x7e1", 1, (5, 5), attributes=FROM_YDB)
    for raw in (plain, marker_like, bytes(broken), longer):
        assert b"".join(without_own_headers(raw)) == raw


@pytest.mark.parametrize("shows_all", [False, True])
def test_what_was_written_before_other_gateways_came_is_read_by_itself(*, shows_all: bool) -> None:
    async def scenario(node: SimNode) -> None:
        partition: Partition = await (await node.queue(1)).add_partition(0)
        own: list[Header] = [(b"ydb.seqno", b"1"), (b"color", b"red")]
        batches = [make_keyed_batch([(b"k", b"v")]), _batch([(None, b"a", own)], FROM_YDB), make_keyed_batch([(b"k", b"w")])]
        for batch in batches:
            await partition.write(batch)
        found = b""
        offset = 0
        while offset < 3:
            read = await read_as_kafka(partition, offset, 3, ReadRequest(1 << 20, False, True, shows_all))
            assert read.size == len(joined(read))
            found += joined(read)
            offset = read.next_offset
            assert shows_all or offset in (1, 3)
        assert [record.value for record in keyed_records_of(found)] == [b"v", b"a", b"w"]
        assert (b"ydb.seqno" in found) == shows_all
        assert b"color" in found

    on_node(scenario)
