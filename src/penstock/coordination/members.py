"""Running nodes: what each tells about itself, and who may register under which id. No I/O."""

from __future__ import annotations

import msgspec

from penstock.coordination.port import Entry
from penstock.core.errors import ConfigError, CorruptionError


class DuplicateMemberError(ConfigError):
    """Another node with this id is registered."""

    code = "duplicate_member"


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running node. `directory_id` is that of its data directory; `instance_id` is new at each start."""

    node_id: int
    name: str
    directory_id: str
    instance_id: str
    addresses: dict[str, str] = {}
    rack: str = ""
    datacenter: str = ""
    version: str = ""
    started_ms: int = 0
    """When its process started; 0 for a version that did not tell."""
    feature_level_max: int = 1
    is_encrypted: bool | None = None
    """Whether it speaks TLS with other nodes; None for a version that did not tell."""
    disks: dict[str, str] = {}
    """The disks of this node by name: empty if one can be used, otherwise why it cannot."""
    configurations: dict[str, int] = {}
    """Generation of the configuration of each storage group that the disks of this node hold."""
    is_leaving: bool = False
    """Whether it is about to stop, and waits for others to take its tablets."""


def encode_member(record: MemberRecord) -> bytes:
    """A member as it is stored."""
    return msgspec.json.encode(record)


def decode_member(entry: Entry) -> MemberRecord:
    """A member as it was stored."""
    try:
        return msgspec.json.decode(entry.value, type=MemberRecord)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"the key {entry.key} does not hold a member: {error}") from error


def check_registration(existing: Entry | None, mine: MemberRecord) -> int:
    """The revision to compare the member key with. The same directory may replace its earlier start, whose lease may still live;
    another one is refused."""
    if existing is None:
        return 0
    other = decode_member(existing)
    if other.directory_id != mine.directory_id:
        addresses = ", ".join(f"{name} {address}" for name, address in sorted(other.addresses.items())) or "no addresses"
        raise DuplicateMemberError(
            f"node {mine.node_id} is registered by {other.name} ({addresses}) with another data directory;"
            " give this node another id, or stop that one and wait for its lease to end"
        )
    return existing.revision
