"""The configuration of a group over nodes: on which node and disk each VDisk lives, numbered by the group's generation.

It changes one VDisk at a time, by compare-and-swap where it is decided. Each VDisk stores the whole of it in a file of its own
before serving it, so that no restart takes it back (integers big-endian):

     0      4        6      8        12       16
     +------+--------+------+--------+--------+------+
     |magic |version |zero  |length  |crc32c  | body |   named <generation, 10 digits>.conf; the body is JSON
     |"PENg"|        |      |of body |of body |      |
     +------+--------+------+--------+--------+------+

The newest whole file counts; older ones are deleted once a newer one is durable.
"""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from penstock.blob.disk import Disk
from penstock.blob.status import Status
from penstock.blob.topology import Erasure
from penstock.core.checksum import crc32c
from penstock.core.errors import ConfigError, CorruptionError, InvalidRequestError

MAGIC = b"PENg"
VERSION = 1
SUFFIX = ".conf"
LOOKS_MAX = 10  # at a directory in which configurations are being replaced

_HEAD = Struct(">4sHHII")


class Seat(NamedTuple):
    """Where a VDisk lives: a node, and one of its disks by name."""

    node: int
    disk: str


class Configuration(NamedTuple):
    """One generation of a group's membership; `seats` are in order of its VDisks. The VDisks of a group that is not formed serve
    nothing: they are only marked as empty from the beginning."""

    group: int
    generation: int
    erasure: Erasure
    seats: tuple[Seat, ...]
    is_formed: bool = True

    def formed(self) -> Configuration:
        """The next generation, in which the group serves."""
        return self._replace(generation=self.generation + 1, is_formed=True)

    def moved(self, order: int, seat: Seat) -> Configuration:
        """The next generation, in which one VDisk lives elsewhere."""
        if not 0 <= order < len(self.seats):
            raise InvalidRequestError(f"group {self.group:08x} has VDisks 0..{len(self.seats) - 1}, not {order}")
        if seat in self.seats:
            raise InvalidRequestError(f"disk {seat.disk} of node {seat.node} has a VDisk of group {self.group:08x} already")
        seats = (*self.seats[:order], seat, *self.seats[order + 1 :])
        return self._replace(generation=self.generation + 1, seats=seats)

    def pack(self) -> bytes:
        """The stored form."""
        fields = self._asdict() | {"erasure": self.erasure.value}
        body = json.dumps(fields, sort_keys=True).encode()
        return _HEAD.pack(MAGIC, VERSION, 0, len(body), crc32c(body)) + body

    @classmethod
    def unpack(cls, raw: bytes | memoryview) -> Configuration:
        """The configuration whose stored form is `raw`. CorruptionError if it is not whole, ConfigError if it is newer."""
        raw = bytes(raw)
        if len(raw) < _HEAD.size or raw[:4] != MAGIC:
            raise CorruptionError("not the configuration of a group")
        _, version, _, length, checksum = _HEAD.unpack_from(raw)
        if version > VERSION:
            raise ConfigError(
                f"a group's configuration has version {version}, this version of Penstock reads up to {VERSION}; upgrade Penstock"
            )
        body = raw[_HEAD.size : _HEAD.size + length]
        if len(body) != length or crc32c(body) != checksum:
            raise CorruptionError("the configuration of a group is damaged")
        fields = json.loads(body)
        seats = tuple(Seat(*seat) for seat in fields["seats"])
        return cls(fields["group"], fields["generation"], Erasure(fields["erasure"]), seats, fields["is_formed"])


class ConfigurationReply(NamedTuple):
    """A VDisk's answer to a configuration that it was offered, and the one that it is in afterwards. OK: it is in that one."""

    status: Status
    current: Configuration | None = None
    reason: str = ""


def refusal(offered: Configuration, current: Configuration) -> str:
    """Why a VDisk in one configuration cannot take another; empty if it can, or is in it."""
    named = f"configuration {offered.generation} of group {offered.group:08x}"
    if (offered.group, offered.erasure) != (current.group, current.erasure):
        return f"{named} is not of group {current.group:08x}, a {current.erasure.value} group"
    if offered.generation < current.generation:
        return f"{named} is older than {current.generation}, which is stored here"
    if offered.generation == current.generation:
        return "" if offered == current else f"{named} differs from the one that is stored here under the same number"
    moved = sum(before != after for before, after in zip(current.seats, offered.seats, strict=True))
    if offered.generation == current.generation + 1 and moved > 1:
        return f"{named} moves {moved} VDisks at once; one at a time can be moved"
    if current.is_formed and not offered.is_formed:
        return f"{named} says that the group is new, and it is not"
    return ""


async def load_configuration(disk: Disk) -> Configuration | None:
    """The newest whole configuration that is stored on a disk."""
    files = await disk.files()
    for name in sorted((name for name in files if name.endswith(SUFFIX)), reverse=True):
        try:
            return Configuration.unpack(await disk.read(name, 0, files[name]))
        except CorruptionError:
            continue  # its writing was cut short, so that it was never served
    return None


def newest_configuration(directory: Path) -> Configuration | None:
    """The newest whole configuration of a VDisk in this directory, also while it is in use."""
    for _ in range(LOOKS_MAX):
        names = sorted((path.name for path in directory.glob(f"*{SUFFIX}")), reverse=True)
        for name in names:
            with suppress(CorruptionError, FileNotFoundError):  # it is being written, or was replaced by a newer one
                return Configuration.unpack((directory / name).read_bytes())
        if not names:
            return None
    raise OSError(errno.EIO, f"the configuration in {directory} is damaged")


async def store_configuration(disk: Disk, configuration: Configuration) -> None:
    """Make a configuration durable on a disk. OSError if that fails; then the one before it still counts."""
    name = f"{configuration.generation:010d}{SUFFIX}"
    files = await disk.files()
    if name in files:
        await disk.delete(name)  # what a crash left of it
    disk.append(name, [configuration.pack()])
    await disk.flush(name)
    for older in files:
        if older.endswith(SUFFIX) and older < name:
            await disk.delete(older)
