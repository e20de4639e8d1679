"""What is kept of classic groups, in the tablet of the consumers.

"g" | group name

    version 1 | generation 4 | empty since 8 (ms, 0 while it has members) | protocol type S | protocol name S | leader S
    | members 4 | for each member:
        id S | instance id S (length -1: none) | client id S | client host S | session timeout 4 (ms) | rebalance timeout 4 (ms)
        | protocols 4 | for each protocol: name S | metadata B
        | assignment B

S is length 4, then so many bytes of UTF-8; B is length 4, then the bytes. Numbers are big-endian; the tablet keeps the checksum.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from struct import error as struct_error

from penstock.broker.groups.members import GroupRecord, Member, OfferedProtocol
from penstock.core.errors import CorruptionError
from penstock.core.format_version import check_version
from penstock.tablet import Command, DeleteRange, KvTablet, Request, Write

VERSION = 1
READS_AT_ONCE = 64

_PREFIX = b"g"
_GROUP = Struct(">BiQ")
_TIMEOUTS = Struct(">ii")
_LENGTH = Struct(">i")


class GroupStore:
    """The records of all classic groups."""

    def __init__(self, tablet: KvTablet) -> None:
        self._tablet = tablet

    async def load(self) -> dict[str, GroupRecord]:
        """Every group, by name."""
        keys = list(self._tablet.keys(_PREFIX, b"h"))
        records: dict[str, GroupRecord] = {}
        for begin in range(0, len(keys), READS_AT_ONCE):
            some = keys[begin : begin + READS_AT_ONCE]
            for key, raw in zip(some, await asyncio.gather(*map(self._tablet.read, some)), strict=True):
                records[key[1:].decode()] = unpack_group(bytes(raw or b""))
        return records

    async def save(self, name: str, packed: bytes) -> None:
        """Keep a group, durably when this returns."""
        await self._tablet.execute(Request((Write(_key(name), packed),), makes_room=True))

    def forget(self, name: str) -> tuple[Command, ...]:
        """Returns the commands that delete a group."""
        key = _key(name)
        return (DeleteRange(key, key + b"\0"),)


def pack_group(record: GroupRecord) -> bytes:
    """The stored form of a group."""
    parts = [_GROUP.pack(VERSION, record.generation, record.empty_since_ms)]
    parts += map(_pack_text, (record.protocol_type, record.protocol_name, record.leader_id))
    parts.append(_LENGTH.pack(len(record.members)))
    for member in record.members:
        parts += map(_pack_text, (member.id, member.instance_id, member.client_id, member.client_host))
        parts.append(_TIMEOUTS.pack(member.session_timeout_ms, member.rebalance_timeout_ms))
        parts.append(_LENGTH.pack(len(member.protocols)))
        for protocol in member.protocols:
            parts += (_pack_text(protocol.name), _pack_bytes(protocol.metadata))
        parts.append(_pack_bytes(member.assignment))
    return b"".join(parts)


def unpack_group(raw: bytes) -> GroupRecord:
    """The group whose stored form is `raw`."""
    reader = _Reader(raw)
    try:
        version, generation, empty_since_ms = reader.take(_GROUP)
        check_version(version, VERSION, "a group")
        protocol_type, protocol_name, leader_id = reader.text(), reader.text(), reader.text()
        members = tuple(reader.member() for _ in range(reader.take(_LENGTH)[0]))
    except (struct_error, UnicodeDecodeError) as error:
        raise CorruptionError(f"the stored form of a group cannot be read: {error}") from error
    return GroupRecord(generation, empty_since_ms, protocol_type, protocol_name, leader_id, members)


class _Reader:
    """Reads the stored form from its beginning to its end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._place = 0

    def take(self, kind: Struct) -> tuple[int, ...]:
        """The next numbers."""
        numbers = kind.unpack_from(self._raw, self._place)
        self._place += kind.size
        return numbers

    def octets(self, length: int) -> bytes:
        """The next bytes."""
        octets = self._raw[self._place : self._place + length]
        if len(octets) < length:
            raise CorruptionError(f"the stored form of a group ends {length - len(octets)} bytes too soon")
        self._place += length
        return octets

    def text(self) -> str:
        """The next text."""
        return self.optional_text() or ""

    def optional_text(self) -> str | None:
        """The next text, if there is one."""
        (length,) = self.take(_LENGTH)
        return None if length < 0 else self.octets(length).decode()

    def member(self) -> Member:
        """The next member."""
        member_id, instance_id, client_id, client_host = self.text(), self.optional_text(), self.text(), self.text()
        session_timeout_ms, rebalance_timeout_ms = self.take(_TIMEOUTS)
        protocols = tuple(OfferedProtocol(self.text(), self.octets(self.take(_LENGTH)[0])) for _ in range(self.take(_LENGTH)[0]))
        assignment = self.octets(self.take(_LENGTH)[0])
        return Member(
            member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, protocols, assignment
        )


def _key(name: str) -> bytes:
    return _PREFIX + name.encode()


def _pack_text(text: str | None) -> bytes:
    if text is None:
        return _LENGTH.pack(-1)
    raw = text.encode()
    return _LENGTH.pack(len(raw)) + raw


def _pack_bytes(raw: bytes) -> bytes:
    return _LENGTH.pack(len(raw)) + raw
