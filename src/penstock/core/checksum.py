"""CRC32C, the checksum of every stored byte."""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
