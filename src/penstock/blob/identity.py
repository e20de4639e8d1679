"""Who a data directory belongs to: a small file that is written once and checked at every opening.

     0      4        6      8        12       16       28       44      48
     +------+--------+------+--------+--------+--------+--------+-------+
     |magic |version |zero  |group   |shape   |realm,  |guid    |crc32c |
     |"PENd"|        |      |        |(code)  |domain, |of disk |       |
     |      |        |      |        |        |vdisk   |        |       |
     +------+--------+------+--------+--------+--------+--------+-------+

The guid is drawn when the disk is made: a disk that was wiped comes back with another one.
"""

from __future__ import annotations

import errno
import logging
from operator import eq
from random import Random
from struct import Struct
from typing import NamedTuple

from penstock.blob.disk import Disk
from penstock.blob.journal import CHUNK_SUFFIX
from penstock.blob.record import HEADER_SIZE, body_is_sound, decode_header
from penstock.blob.topology import Erasure, VDiskId
from penstock.core.checksum import crc32c
from penstock.core.errors import ConfigError

log = logging.getLogger(__name__)

IDENTITY_NAME = "vdisk"
MAGIC = b"PENd"
VERSION = 1

_IDENTITY = Struct(">4sHHIIIII16s")
_CRC = Struct(">I")
_ERASURE_CODES = {Erasure.NONE: 0, Erasure.BLOCK_4_2: 1, Erasure.MIRROR_3_DC: 2, Erasure.MIRROR_3: 3}


class Identity(NamedTuple):
    """The place of a disk in a group, whatever the group's generation, and the disk's own guid."""

    group: int
    erasure: Erasure
    realm: int
    domain: int
    vdisk: int
    guid: bytes

    def pack(self) -> bytes:
        """The stored form."""
        code = _ERASURE_CODES[self.erasure]
        head = _IDENTITY.pack(MAGIC, VERSION, 0, self.group, code, self.realm, self.domain, self.vdisk, self.guid)
        return head + _CRC.pack(crc32c(head))

    @classmethod
    def unpack(cls, raw: bytes) -> Identity:
        """The identity whose stored form is `raw`; ConfigError if it is not one, or one of a newer format."""
        if len(raw) < _IDENTITY.size + _CRC.size or raw[:4] != MAGIC:
            raise ConfigError(f"the file {IDENTITY_NAME!r} is not that of a Penstock VDisk; name another directory")
        _, version, _, group, code, realm, domain, vdisk, guid = _IDENTITY.unpack_from(raw)
        if version > VERSION:
            raise ConfigError(
                f"the VDisk was written in format {version}, this version of Penstock reads up to {VERSION}; upgrade Penstock"
            )
        if _CRC.unpack_from(raw, _IDENTITY.size)[0] != crc32c(raw[: _IDENTITY.size]):
            raise ConfigError(f"the file {IDENTITY_NAME!r} is damaged; replace the disk, and the group will refill it")
        erasure = next(kind for kind, known in _ERASURE_CODES.items() if known == code)
        return cls(group, erasure, realm, domain, vdisk, guid)


async def claim_disk(disk: Disk, vdisk_id: VDiskId, erasure: Erasure, random: Random) -> Identity:
    """Check that the disk is this VDisk's, or make it so if it is empty. ConfigError if it is another's."""
    files = await disk.files()
    wanted = Identity(vdisk_id.group, erasure, vdisk_id.realm, vdisk_id.domain, vdisk_id.vdisk, random.randbytes(16))
    if IDENTITY_NAME not in files:
        if files:
            strangers = ", ".join(sorted(files)[:3])
            raise ConfigError(f"the disk for VDisk {vdisk_id} holds other files ({strangers}); name an empty directory")
        return await _write(disk, wanted)
    raw = await disk.read(IDENTITY_NAME, 0, files[IDENTITY_NAME])
    if len(files) == 1 and _is_torn(raw):
        # Its making was cut short by a crash before anything could be stored here.
        await disk.delete(IDENTITY_NAME)
        return await _write(disk, wanted)
    if _is_torn(raw) and len(raw) == _IDENTITY.size + _CRC.size and sum(map(eq, raw[:4], MAGIC)) >= len(MAGIC) - 1:
        return await _restore(disk, files, raw, wanted)
    stored = Identity.unpack(raw)
    if stored[:5] != wanted[:5]:
        held = VDiskId(stored.group, vdisk_id.generation, stored.realm, stored.domain, stored.vdisk)
        raise ConfigError(
            f"the disk holds VDisk {held} of a {stored.erasure.value} group, not {vdisk_id} of a {erasure.value} group; "
            "check which directory belongs to which group"
        )
    return stored


async def _restore(disk: Disk, files: dict[str, int], raw: bytes, wanted: Identity) -> Identity:
    """Write a damaged identity again if the log, each chunk of which begins with it, says whose the disk is. Otherwise the disk
    is out; where there is no other, ConfigError."""
    newest = max((name for name in files if name.endswith(CHUNK_SUFFIX)), default=None)
    is_ours = False
    if newest is not None:
        number = int(newest.removesuffix(CHUNK_SUFFIX))
        size = HEADER_SIZE + _IDENTITY.size + _CRC.size
        start = await disk.read(newest, 0, min(size, files[newest]))
        header = decode_header(start, number, 0)
        told = bytes(start[HEADER_SIZE:])
        is_ours = header is not None and body_is_sound(header, b"", told) and Identity.unpack(told)[:5] == wanted[:5]
    if not is_ours:
        trouble = f"the file {IDENTITY_NAME!r} is damaged, and the log does not tell whose the disk is; replace the disk"
        raise ConfigError(trouble) if wanted.erasure is Erasure.NONE else OSError(errno.EIO, trouble)
    guid = raw[_IDENTITY.size - 16 : _IDENTITY.size] if len(raw) >= _IDENTITY.size else wanted.guid
    log.error("the file %r of VDisk %s was damaged and is written again; look after the disk", IDENTITY_NAME, wanted[:5])
    await disk.delete(IDENTITY_NAME)
    return await _write(disk, wanted._replace(guid=guid))


async def _write(disk: Disk, identity: Identity) -> Identity:
    disk.append(IDENTITY_NAME, [identity.pack()])
    await disk.flush(IDENTITY_NAME)
    return identity


def _is_torn(raw: bytes) -> bool:
    """Whether this may be what a crash left of an identity of this format."""
    if len(raw) < _IDENTITY.size + _CRC.size:
        return True
    checksum = _CRC.unpack_from(raw, _IDENTITY.size)[0]
    newer = raw[:4] == MAGIC and _IDENTITY.unpack_from(raw)[1] > VERSION
    return not newer and checksum != crc32c(raw[: _IDENTITY.size])
