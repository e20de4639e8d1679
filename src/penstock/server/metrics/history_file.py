"""The file that keeps the history of metrics over a restart. It is written once a minute and when a node stops; it is not synced,
and one that cannot be read is left out: a chart is worth no refused start.

magic "PSHI" 4 | version 1 | crc32c of what follows 4 | body, packed by zlib
body, as MessagePack: [byte order, [[step, capacity, ticks, times, [[metric, topic, consumer, values], …]], …]]
"""

from __future__ import annotations

import logging
import os
import sys
import zlib
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from penstock.core.checksum import crc32c
from penstock.server.metrics.history import History, StoredLevel

log = logging.getLogger(__name__)

FILE_NAME: Final = "history.bin"
MAGIC: Final = b"PSHI"
VERSION: Final = 1
BODY_BYTES_MAX: Final = 64 << 20
_HEAD: Final = Struct(">4sBI")


def pack_history(history: History) -> bytes:
    """The body, not packed yet: only this has to be done while no tick changes the history."""
    return msgspec.msgpack.encode((sys.byteorder, history.stored_levels()))


def write_history(path: Path, body: bytes) -> None:
    """Replace the file. Raises OSError if that fails."""
    packed = zlib.compress(body, 1)
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(_HEAD.pack(MAGIC, VERSION, crc32c(packed)) + packed)
    new.replace(path)


def read_history(path: Path, now_ms: int) -> History | None:
    """What the file holds; None if there is none that this version can read."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the history of metrics is not restored: %s cannot be read: %s", path, error.strerror)
        return None
    history = _parse(raw, now_ms)
    if history is None:
        log.warning("the history of metrics is not restored: %s is damaged, of another version, or later than the clock", path)
    return history


def _parse(raw: bytes, now_ms: int) -> History | None:
    if len(raw) < _HEAD.size:
        return None
    magic, version, checksum = _HEAD.unpack_from(raw)
    packed = raw[_HEAD.size :]
    if magic != MAGIC or version != VERSION or checksum != crc32c(packed):
        return None
    try:
        body = zlib.decompressobj().decompress(packed, BODY_BYTES_MAX)
        order, levels = msgspec.msgpack.decode(body, type=tuple[str, list[StoredLevel]])
    except (zlib.error, msgspec.MsgspecError):
        return None
    return History.restored(levels, now_ms) if order == sys.byteorder else None
