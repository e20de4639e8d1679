"""Records of Kafka's internal topics, built by hand from Kafka's message specifications."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from penstock.server.http.kafka_internal_records import NotInternalError, decode_internal


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


OFFSET_KEY = struct.pack(">h", 1) + text("billing") + text("orders") + struct.pack(">i", 3)
GROUP_KEY = struct.pack(">h", 2) + text("billing")
TRANSACTION_KEY = struct.pack(">h", 0) + text("payments")
MEMBER = text("m-1") + text(None) + text("app") + text("/10.0.0.1") + struct.pack(">iii2si", 60_000, 45_000, 2, b"ab", 0)


@pytest.mark.parametrize(
    ("key", "value", "decoded"),
    [
        (
            OFFSET_KEY,
            struct.pack(">hqi", 3, 42, 7) + text("note") + struct.pack(">q", 1_700_000_000_000),
            {"version": 3, "offset": 42, "leader_epoch": 7, "metadata": "note", "commit_timestamp": 1_700_000_000_000},
        ),
        (
            OFFSET_KEY,
            struct.pack(">hq", 1, 42) + text("") + struct.pack(">qq", 5, 6),
            {"version": 1, "offset": 42, "metadata": "", "commit_timestamp": 5, "expire_timestamp": 6},
        ),
        (
            GROUP_KEY,
            struct.pack(">h", 3)
            + text("consumer")
            + struct.pack(">i", 9)
            + text("range")
            + text("m-1")
            + struct.pack(">qi", 11, 1)
            + MEMBER,
            {
                "version": 3,
                "protocol_type": "consumer",
                "generation": 9,
                "protocol": "range",
                "leader": "m-1",
                "state_timestamp": 11,
                "members": [
                    {
                        "member": "m-1",
                        "instance": None,
                        "client": "app",
                        "host": "/10.0.0.1",
                        "rebalance_timeout_ms": 60_000,
                        "session_timeout_ms": 45_000,
                    }
                ],
            },
        ),
        (
            TRANSACTION_KEY,
            struct.pack(">hqhib", 0, 4000, 2, 60_000, 1)
            + struct.pack(">i", 1)
            + text("orders")
            + struct.pack(">iii", 2, 0, 1)
            + struct.pack(">qq", 5, 6),
            {
                "version": 0,
                "producer_id": 4000,
                "producer_epoch": 2,
                "timeout_ms": 60_000,
                "state": "Ongoing",
                "partitions": [{"topic": "orders", "partitions": [0, 1]}],
                "update_timestamp": 5,
                "start_timestamp": 6,
            },
        ),
    ],
)
def test_a_value_is_read_by_its_key(key: bytes, value: bytes, decoded: dict[str, Any]) -> None:
    assert decode_internal(key, value)[1] == decoded
    for end in range(len(value)):  # a record that is cut is refused, not shown in part
        with pytest.raises(NotInternalError):
            decode_internal(key, value[:end])


def test_keys_tell_what_a_record_is_about() -> None:
    assert decode_internal(OFFSET_KEY, None) == (
        {"type": "committed offset", "group": "billing", "topic": "orders", "partition": 3},
        None,
    )
    assert decode_internal(TRANSACTION_KEY, None)[0] == {"type": "transaction", "transactional_id": "payments"}
    member_key = struct.pack(">h", 5) + text("billing") + text("m-1")
    assert decode_internal(member_key, b"\0\0\1\2") == (
        {"type": "consumer group member", "group": "billing", "member": "m-1"},
        {"version": 0, "undecoded": "0102"},
    )


@pytest.mark.parametrize("key", [b"", b"\0", b"order-17", OFFSET_KEY + b"x", struct.pack(">hh", 1, 30_000), b"{}"])
def test_other_keys_are_refused(key: bytes) -> None:
    with pytest.raises(NotInternalError):
        decode_internal(key, b"value")
