"""The codecs of record batches, for reading. gzip, snappy and lz4 need nothing; zstd needs a library that knows it.

snappy and lz4 are simple formats of copies and literals, decoded here byte by byte where no library does it faster.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Final

from penstock.cli.failure import CommandError

_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL: Final = b"\x82SNAPPY\x00"
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"


def decompress(codec: int, data: memoryview) -> memoryview:
    """The records of a batch whose attributes name this codec."""
    if codec == 0:
        return data
    if codec >= len(_NAMES):
        raise CommandError(f"the batch is compressed with codec {codec}, which is not known here")
    try:
        return memoryview((_gzip, _snappy, _lz4, _zstd)[codec - 1](bytes(data)))
    except CommandError:
        raise
    except Exception as error:
        raise CommandError(f"a batch does not decompress as {_NAMES[codec]}: {error}") from error


def _gzip(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=31)


def _snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data)
    # Java's framing: a header of 16 bytes, then blocks, each after its size.
    out, at = bytearray(), 16
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        out += _snappy_block(data[at + 4 : at + 4 + size])
        at += 4 + size
    return bytes(out)


def _snappy_block(data: bytes) -> bytes:
    size, shift, at = 0, 0, 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length = int.from_bytes(data[at : at + width], "little")
                at += width
            out += data[at : at + length + 1]
            at += length + 1
            continue
        if kind == 1:
            length, back, width = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at], 1
        else:
            width = 2 if kind == 2 else 4
            length, back = (tag >> 2) + 1, int.from_bytes(data[at : at + width], "little")
        at += width
        _copy_back(out, back, length)
    if len(out) != size:
        raise ValueError(f"{len(out)} bytes in place of {size}")
    return bytes(out)


def _lz4(data: bytes) -> bytes:
    if not data.startswith(_LZ4_MAGIC):
        raise ValueError("no lz4 frame")
    flags = data[4]
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    block_checksum = 4 if flags & 0x10 else 0
    out = bytearray()
    while True:
        size = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if size == 0:
            return bytes(out)
        length = size & 0x7FFFFFFF
        block = data[at : at + length]
        if len(block) < length:
            raise ValueError("cut off")
        if size & 0x80000000:
            out += block
        else:
            _lz4_block(block, out)
        at += length + block_checksum


def _lz4_block(data: bytes, out: bytearray) -> None:
    at, end = 0, len(data)
    while at < end:
        token = data[at]
        length, at = _lz4_length(data, at + 1, token >> 4)
        out += data[at : at + length]
        at += length
        if at >= end:
            return
        back = data[at] | data[at + 1] << 8
        length, at = _lz4_length(data, at + 2, token & 15)
        _copy_back(out, back, length + 4)


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            byte = data[at]
            at += 1
            length += byte
            if byte != 255:
                break
    return length, at


def _copy_back(out: bytearray, back: int, length: int) -> None:
    """Repeat what stands `back` bytes before the end; the copy may run into itself."""
    begin = len(out) - back
    if back == 0 or begin < 0:
        raise ValueError("a copy from before the beginning")
    if back >= length:
        out += out[begin : begin + length]
    else:
        piece = bytes(out[begin:])
        out += (piece * (length // back + 1))[:length]


def _zstd(data: bytes) -> bytes:
    candidates: tuple[tuple[str, Callable[..., bytes]], ...] = (
        ("compression.zstd", lambda library: library.decompress(data)),
        ("backports.zstd", lambda library: library.decompress(data)),
        ("zstandard", lambda library: library.ZstdDecompressor().decompressobj().decompress(data)),
        ("cramjam", lambda library: bytes(library.zstd.decompress(data))),
    )
    for name, decode in candidates:
        try:
            library = import_module(name)
        except ImportError:
            continue
        return decode(library)
    raise CommandError("the batch is compressed with zstd, which this Python cannot read; `pip install zstandard` teaches it")
