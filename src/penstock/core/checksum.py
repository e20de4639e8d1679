"""CRC32C, the checksum of every stored byte."""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

__all__ = ["KEEP_LOCK", "crc32c"]

# As the third argument of `crc32c`: it keeps the interpreter's lock, which to give up and take again costs more than the checksum
# of some 64 KiB. Without it, bytes from 32 KiB on have the lock given up.
KEEP_LOCK: Final = 0
