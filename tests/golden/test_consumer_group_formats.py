"""Stored bytes of groups whose coordinator assigns partitions, pinned: groups of an older Penstock must be taken up.

A file here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker import TopicPartition
from penstock.broker.groups.consumer_records import (
    MEMBER,
    GroupRecord,
    Member,
    MemberState,
    key_of,
    pack_target,
    unpack_target,
)
from penstock.broker.groups.group_configs import pack_config, unpack_config
from penstock.core.errors import ConfigError, CorruptionError

FOLDER = Path(__file__).parent
FIRST = UUID(hex="000102030405060708090a0b0c0d0e0f")
SECOND = UUID(hex="101112131415161718191a1b1c1d1e1f")
QUEUES = frozenset({TopicPartition(FIRST, 1), TopicPartition(FIRST, 0x01020304), TopicPartition(SECOND, 7)})
GROUP = GroupRecord(0x01020304, 0x05060708, 0x090A0B0C0D0E0F10, "uniform", {SECOND: 8, FIRST: 0x11121314})
MEMBER_FULL = Member(
    id="member",
    instance_id="instance",
    rack_id="rack",
    client_id="client",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=0x01020304,
    names=frozenset({"orders", "events"}),
    pattern="^x.*",
    assignor="range",
    epoch=0x05060708,
    previous_epoch=0x090A0B0C,
    state=MemberState.UNREVOKED,
    assigned=QUEUES,
    revoking=frozenset({TopicPartition(SECOND, 9)}),
)
CONFIG = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "700"}
MEMBER_BARE = Member(id="member", epoch=-2, names=frozenset({"größe"}))

FORMATS: dict[str, Callable[[], bytes]] = {
    "consumer_group": GROUP.pack,
    "consumer_group_empty": GroupRecord().pack,
    "consumer_group_member": MEMBER_FULL.pack,
    "consumer_group_member_bare": MEMBER_BARE.pack,
    "consumer_group_target": lambda: pack_target(QUEUES),
    "consumer_group_config": lambda: pack_config(CONFIG),
    "consumer_group_key": lambda: key_of("group", MEMBER, "member"),
}


def _pinned(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_written_are_the_pinned_ones(name: str) -> None:
    assert FORMATS[name]() == _pinned(name)


def test_records_are_read_back() -> None:
    assert GroupRecord.unpack(_pinned("consumer_group")) == GROUP
    assert GroupRecord.unpack(_pinned("consumer_group_empty")) == GroupRecord()
    assert Member.unpack("member", _pinned("consumer_group_member")) == MEMBER_FULL
    assert Member.unpack("member", _pinned("consumer_group_member_bare")) == MEMBER_BARE
    assert unpack_config(_pinned("consumer_group_config")) == CONFIG
    assert unpack_target(_pinned("consumer_group_target")) == QUEUES


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(ConfigError):
        GroupRecord.unpack(b"\2" + _pinned("consumer_group")[1:])


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + b"x", lambda raw: b""])
def test_a_damaged_record_is_refused(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptionError):
        GroupRecord.unpack(change(_pinned("consumer_group")))
    with pytest.raises(CorruptionError):
        Member.unpack("member", change(_pinned("consumer_group_member")))
