"""Stored bytes of groups, pinned: data written by an older Penstock must stay readable.

A file here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.groups.members import GroupRecord, Member, OfferedProtocol
from penstock.broker.groups.store import pack_group, unpack_group
from penstock.core.errors import ConfigError, CorruptionError

FOLDER = Path(__file__).parent
PROTOCOLS = (OfferedProtocol("range", b"\x00\x01about"), OfferedProtocol("sticky", b""))
MEMBERS = (
    Member("rdkafka-1", None, "rdkafka", "/127.0.0.1", 45_000, 300_000, PROTOCOLS, b"share one"),
    Member("Müller-2", "Müller", "", "", 1000, 0x01020304, PROTOCOLS[:1], b""),
)
RECORDS = {
    "classic_group": GroupRecord(0x01020304, 0, "consumer", "range", "rdkafka-1", MEMBERS),
    "classic_group_empty": GroupRecord(7, 0x0102030405060708, "consumer", "", "", ()),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_group_is_stored_as_ever(name: str) -> None:
    assert pack_group(RECORDS[name]).hex() == _pinned(name).hex()


@pytest.mark.parametrize("name", RECORDS)
def test_a_group_stored_before_is_read(name: str) -> None:
    assert unpack_group(_pinned(name)) == RECORDS[name]


def test_a_group_of_a_later_format_asks_for_an_upgrade() -> None:
    with pytest.raises(ConfigError, match="upgrade"):
        unpack_group(b"\2" + _pinned("classic_group")[1:])


def test_a_group_in_no_format_is_corrupt() -> None:
    with pytest.raises(CorruptionError, match="no format"):
        unpack_group(b"\0" + _pinned("classic_group")[1:])


def test_a_group_cut_anywhere_is_refused() -> None:
    raw = _pinned("classic_group")
    for length in range(len(raw)):
        with pytest.raises(CorruptionError):
            unpack_group(raw[:length])


def _pinned(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text())
