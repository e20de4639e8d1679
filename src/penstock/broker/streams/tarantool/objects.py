"""Payloads as objects of an S3 store, or of any other that `obstore` knows: in parts, with ranges, never whole in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError, InvalidPathError, NotFoundError
from obstore.store import from_url

from penstock.blob import Buffer
from penstock.broker.streams.errors import PayloadCorruptError, UnknownMessageError
from penstock.core.checksum import crc32c
from penstock.core.errors import ConfigError, UnavailableError

PART_BYTES: Final = 8 << 20  # S3 takes no less than 5 MiB for a part that is not the last
PARTS_AT_ONCE: Final = 2
READ_BYTES: Final = 4 << 20


def open_objects(url: str) -> ObjectPayloads:
    """The payloads at s3://bucket/prefix or file:///directory; credentials and endpoint are taken from the environment."""
    try:
        if url.startswith("file://"):
            return ObjectPayloads(from_url(url, mkdir=True))
        return ObjectPayloads(from_url(url, client_options={"allow_http": True}))
    except (BaseError, ValueError) as error:
        raise ConfigError(f"payloads cannot be kept at {url!r}: {error}") from error


class StoredObject:
    """An object while it is written: its size and checksum so far."""

    def __init__(self) -> None:
        self.size = 0
        self.crc32c = 0


class ObjectPayloads:
    """The objects of one bucket. Errors of the store are reported as unavailable, since they may be temporary."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def write(self, name: str, parts: AsyncIterator[Buffer]) -> StoredObject:
        """Store an object; it is there when this returns."""
        stored = StoredObject()
        try:
            writer = obstore.open_writer_async(self._store, name, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
            async for part in parts:
                stored.size += len(part)
                stored.crc32c = crc32c(part, stored.crc32c)
                await writer.write(bytes(part))
            await writer.close()
        except BaseError as error:
            raise UnavailableError(f"object {name!r} cannot be stored: {error}; try again") from error
        return stored

    async def put(self, name: str, data: bytes) -> None:
        """Store a small object with one request."""
        try:
            await obstore.put_async(self._store, name, data, use_multipart=False)
        except BaseError as error:
            raise UnavailableError(f"object {name!r} cannot be stored: {error}; try again") from error

    async def read(self, name: str, size: int, begin: int, end: int | None, checksum: int | None) -> AsyncIterator[memoryview]:
        """The bytes begin <= at < end of an object. All of them together must match the checksum."""
        end = size if end is None else min(end, size)
        at, came = begin, 0
        is_whole = begin == 0 and end == size
        while at < end:
            stop = min(at + READ_BYTES, end)
            try:
                data = memoryview(await obstore.get_range_async(self._store, name, start=at, end=stop))
            except (NotFoundError, FileNotFoundError) as error:
                raise UnknownMessageError(f"object {name!r} is gone: the time of its message is over") from error
            except BaseError as error:
                raise UnavailableError(f"object {name!r} cannot be read: {error}; try again") from error
            if len(data) != stop - at:
                raise PayloadCorruptError(f"object {name!r} has {len(data)} bytes where {stop - at} were stored")
            came = crc32c(data, came)
            if is_whole and stop == end and checksum is not None and came != checksum:
                raise PayloadCorruptError(f"object {name!r} does not match its checksum; it was changed in the store")
            yield data
            at = stop

    async def size_of(self, name: str) -> int | None:
        """The size of an object; None if there is none, or no object can have that name."""
        try:
            return int((await obstore.head_async(self._store, name))["size"])
        except (NotFoundError, FileNotFoundError, InvalidPathError, ValueError):
            return None
        except BaseError as error:
            raise UnavailableError(f"object {name!r} cannot be looked up: {error}; try again") from error

    async def delete(self, names: list[str]) -> None:
        """Delete objects; it is no error if some are gone already."""
        for name in names:
            try:
                await obstore.delete_async(self._store, name)
            except (NotFoundError, FileNotFoundError):
                continue
            except BaseError as error:
                raise UnavailableError(f"object {name!r} cannot be deleted: {error}; it will be tried again") from error
