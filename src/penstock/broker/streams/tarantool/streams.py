"""Streams whose metadata is in Tarantool, in the seed's spaces and by the seed's functions, and whose payloads are objects.

An object is announced before it is written and no more announced once its message is there, in the transaction that makes the
message; a message that goes leaves the name of its object, in the transaction that deletes it. So what a crash leaves is found.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.resources import files
from random import Random
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import asynctnt
from asynctnt.exceptions import TarantoolError

from penstock.blob import Buffer
from penstock.broker.streams.engine import DeletedMessage, PartlyPublishedError, PublishResult, first_messages
from penstock.broker.streams.errors import InvalidPositionError, PayloadCorruptError, UnknownMessageError
from penstock.broker.streams.followers import Followers
from penstock.broker.streams.positions import ConsumerPosition, DeliveryRule
from penstock.broker.streams.reading import ReadMessages, StreamMessage
from penstock.broker.streams.records import CHECKSUM, OWN_PREFIX, SIZE, Content, Payload, headers_size
from penstock.broker.streams.subject_patterns import check_pattern, check_subject, consumes, is_pattern, matches
from penstock.broker.streams.tarantool.objects import ObjectPayloads
from penstock.core.checksum import crc32c as checksum_of
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, InvalidRequestError, PenstockError, UnavailableError

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 3301
SCHEMA_VERSION: Final = 2  # of schema.lua, as define_globals returns it
INLINE_BYTES_MAX: Final = 1 << 20  # what Fetch gives with the message
UPLOAD_S: Final = 6 * 3600  # after which an upload without a message is taken for one whose node has died
LOOK_S: Final = 0.1
SCAN: Final = 1000
OBJECTS_AT_ONCE: Final = 1000


async def connect(url: str) -> Any:
    """A connection to tarantool://user:password@host:port."""
    parts = urlsplit(url)
    if parts.scheme != "tarantool" or not parts.hostname:
        raise ConfigError(f"{url!r} is not of the form tarantool://user:password@host:port")
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    connection = asynctnt.Connection(
        host=parts.hostname,
        port=parts.port or DEFAULT_PORT,
        username=user,
        password=password,
        fetch_schema=False,
        auto_refetch_schema=False,
    )
    try:
        async with asyncio.timeout(10):
            await connection.connect()
    except (OSError, TimeoutError, TarantoolError) as error:
        await disconnect(connection)
        where = f"{parts.hostname}:{parts.port or DEFAULT_PORT}"
        raise UnavailableError(f"Tarantool at {where} cannot be reached: {error}") from error
    return connection


async def disconnect(connection: Any) -> None:
    """End a connection, and let its socket be closed before anything else ends."""
    await connection.disconnect()
    for _ in range(3):
        await asyncio.sleep(0)


async def install(connection: Any) -> None:
    """Make the spaces, indexes and functions, or bring the functions up to date."""
    script = files("penstock.broker.streams.tarantool").joinpath("schema.lua").read_text()
    try:
        await connection.eval(script)
    except TarantoolError as error:
        raise ConfigError(f"the schema of streams cannot be installed: {error}; the user needs all rights for that") from error


class TarantoolStreams:
    """Streams in Tarantool and an object store. Make them with `start`."""

    def __init__(
        self,
        connection: Any,
        objects: ObjectPayloads,
        *,
        ttl_s: float | None,
        clock: Clock,
        random: Random,
        upload_s: float = UPLOAD_S,
    ) -> None:
        self._connection = connection
        self._objects = objects
        self._ttl_s = ttl_s
        self._upload_s = upload_s
        self._clock = clock
        self._random = random
        self._uploading: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.followers = Followers(clock)

    @classmethod
    async def start(
        cls,
        url: str,
        objects: ObjectPayloads,
        *,
        ttl_s: float | None,
        clock: Clock,
        random: Random,
        upload_s: float = UPLOAD_S,
    ) -> TarantoolStreams:
        """Connect; the schema must be installed."""
        streams = cls(await connect(url), objects, ttl_s=ttl_s, clock=clock, random=random, upload_s=upload_s)
        try:
            version = await streams._call("define_globals")
            if int(version) < SCHEMA_VERSION:
                raise InvalidRequestError(f"the functions in Tarantool are of version {version}, older than {SCHEMA_VERSION}")
        except InvalidRequestError as error:
            await disconnect(streams._connection)
            raise ConfigError(f"{error}; run: penstock stream init-tarantool URL") from error
        streams._tasks = [asyncio.create_task(streams._watch()), asyncio.create_task(streams._keep_swept())]
        return streams

    async def stop(self) -> None:
        """Stop the background tasks and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await disconnect(self._connection)

    async def publish(self, subject: str, data: Buffer, headers: Mapping[str, str] | None = None) -> PublishResult:
        """Publish one message."""
        check_subject(subject)
        headers_size(headers or {})
        raw = bytes(data)
        name = await self._announced(subject)
        try:
            await self._objects.put(name, raw)
            return await self._insert(subject, name, headers, len(raw), checksum_of(raw))
        finally:
            self._uploading.discard(name)

    async def publish_batch(self, subject: str, contents: Sequence[Content]) -> list[PublishResult]:
        """Publish messages of one subject, in order."""
        published: list[PublishResult] = []
        for content in contents:
            try:
                published.append(await self.publish(subject, content.data, content.headers))
            except PenstockError as error:
                if published:
                    raise PartlyPublishedError(published, error) from error
                raise
        return published

    async def publish_reference(self, subject: str, object_name: str, headers: Mapping[str, str] | None = None) -> int:
        """The seed's publish_message: the payload is the publisher's, and so is its end."""
        check_subject(subject)
        headers_size(headers or {})
        return int(await self._call("publish_message", subject, object_name, dict(headers or {})))

    async def publish_stream(
        self,
        subject: str,
        parts: AsyncIterator[Buffer],
        headers: Mapping[str, str] | None = None,
        *,
        crc32c: int | None = None,
        size: int | None = None,
    ) -> PublishResult:
        """Publish data that arrives in parts, of any size."""
        check_subject(subject)
        headers_size(headers or {})
        name = await self._announced(subject)
        try:
            stored = await self._objects.write(name, parts)
            if size not in (None, stored.size) or crc32c not in (None, stored.crc32c):
                await self._remove([name])
                raise PayloadCorruptError(
                    f"{stored.size} bytes with checksum {stored.crc32c:08x} came, not those that were announced; send them again"
                )
            return await self._insert(subject, name, headers, stored.size, stored.crc32c)
        finally:
            self._uploading.discard(name)

    async def get_message(self, sequence: int) -> StreamMessage | None:
        """The message of a sequence."""
        row = await self._call("get_message_by_sequence", sequence)
        return None if row is None or self._is_over(row) else _message(row)

    async def read(self, subject: str, from_sequence: int, limit: int, bytes_max: int = 8 << 20) -> ReadMessages:
        """Messages from a sequence on, of a subject or a pattern."""
        if limit < 1:
            return ReadMessages([], from_sequence)
        if is_pattern(subject):
            check_pattern(subject)
            count = min(max(limit, SCAN), SCAN)
            scanned = await self._call("get_messages_since", from_sequence, count)
            rows = [row for row in scanned if matches(subject, row[3])][:limit]
        else:
            count = limit
            scanned = rows = await self._call("get_messages_by_subject", subject, from_sequence, limit)
        next_sequence = from_sequence
        if len(rows) == limit:
            next_sequence = rows[-1][0] + 1
        elif scanned:
            next_sequence = scanned[-1][0] + 1
        messages: list[StreamMessage] = []
        size = 0
        for row in rows:
            if self._is_over(row):
                continue
            if messages and size >= bytes_max:
                return ReadMessages(messages, row[0])
            messages.append(await self._with_data(_message(row)))
            size += len(messages[-1].data)
        return ReadMessages(messages, next_sequence)

    async def fetch(self, subject: str, durable_name: str, limit: int, bytes_max: int = 8 << 20) -> list[StreamMessage]:
        """What a durable consumer has not acknowledged."""
        if not durable_name:
            raise InvalidRequestError("a fetch needs a durable name; without one, read from a sequence on")
        position = await self.get_position(durable_name, subject)
        return await first_messages(self, subject, position + 1, limit, bytes_max)

    async def acknowledge(self, durable_name: str, subject: str, sequence: int, *, rewind: bool = False) -> int:
        """A consumer has dealt with a message and all before it; its position then."""
        last = int(await self._call("get_latest_sequence"))
        if not 0 <= sequence <= last:
            raise InvalidPositionError(
                f"sequence {sequence} was not given out yet, the last is {last}; acknowledge what was read"
            )
        if not durable_name:
            raise InvalidRequestError("a durable name is not empty")
        (check_pattern if is_pattern(subject) else check_subject)(subject)
        await self._call(f"{'rewind' if rewind else 'update'}_consumer_position", durable_name, subject, sequence)
        return await self.get_position(durable_name, subject)

    async def set_rule(self, durable_name: str, subject: str, rule: DeliveryRule | None) -> None:
        """This engine shows every member all messages."""
        if rule is not None:
            raise InvalidRequestError("messages are not shared by members in Tarantool; use the embedded engine for that")

    async def last_sequence(self, subject: str) -> int:
        """The last sequence that can be read, of a subject or a pattern."""
        if not is_pattern(subject):
            return int(await self._call("get_latest_sequence_for_subject", subject))
        names = [name for name in await self.get_subjects() if matches(subject, name)]
        return max([int(await self._call("get_latest_sequence_for_subject", name)) for name in names], default=0)

    async def get_position(self, durable_name: str, subject: str) -> int:
        """The last sequence a consumer has acknowledged."""
        return int(await self._call("get_consumer_position", durable_name, subject))

    async def get_consumers(self, subject: str) -> list[ConsumerPosition]:
        """Every durable consumer of a subject, also by a pattern; of a pattern, all consumers of what it stands for."""
        rows = [ConsumerPosition(*row) for row in await self._call("get_consumers")]
        return [position for position in rows if consumes(position.subject, subject)]

    async def get_subjects(self) -> list[str]:
        """The names of all subjects that have messages."""
        return list(await self._call("get_subjects"))

    async def delete_old(self, ttl_s: float) -> list[DeletedMessage]:
        """Delete messages older than `ttl_s` with their payloads. Returns the deleted messages."""
        answer = (await self._body("delete_old_messages", ttl_s))[1]
        await self._remove_leftovers()
        return sorted(DeletedMessage(message["sequence"], message["subject"], message["object_name"]) for message in answer)

    async def payload_of(self, sequence: int) -> tuple[StreamMessage, int]:
        """The message whose payload is to be read, and its size."""
        stored = await self.get_message(sequence)
        if stored is None:
            raise UnknownMessageError(f"there is no message {sequence}, or its time is over")
        message = await self.locate_payload(stored)
        if message.payload is None or message.payload.size < 0:
            raise UnknownMessageError(f"the payload of message {sequence} is kept by its publisher: {message.object_name!r}")
        return message, message.payload.size

    async def locate_payload(self, message: StreamMessage) -> StreamMessage:
        """A message whose payload the publisher has put into the store, with the size of it; the same if it is not there."""
        payload = message.payload
        if payload is None or payload.size >= 0:
            return message
        size = await self._objects.size_of(payload.object_name)
        return message if size is None else message._replace(payload=Payload(payload.object_name, size))

    async def read_payload(self, message: StreamMessage, begin: int = 0, end: int | None = None) -> AsyncIterator[Buffer]:
        """The bytes begin <= at < end of a payload, part by part."""
        payload = message.payload
        assert payload is not None
        async for part in self._objects.read(payload.object_name, payload.size, begin, end, payload.crc32c):
            yield part

    async def sweep(self) -> None:
        """Delete expired messages now."""
        await self._call("define_globals")  # Tarantool may have been started again
        if self._ttl_s is not None:
            await self._body("delete_old_messages", self._ttl_s)
        await self._remove_leftovers()

    async def _announced(self, subject: str) -> str:
        name = f"{subject}/{self._random.getrandbits(128):032x}"
        self._uploading.add(name)
        await self._call("begin_upload", name)
        return name

    async def _insert(
        self, subject: str, name: str, headers: Mapping[str, str] | None, size: int, checksum: int
    ) -> PublishResult:
        own = {SIZE: str(size), CHECKSUM: f"{checksum:08x}"}
        sequence = int(await self._call("publish_upload", subject, name, {**(headers or {}), **own}))
        self.followers.tell()
        return PublishResult(sequence, name)

    async def _with_data(self, message: StreamMessage) -> StreamMessage:
        payload = message.payload
        if payload is None or not 0 <= payload.size <= INLINE_BYTES_MAX:
            return message
        parts = [bytes(part) async for part in self.read_payload(message)]
        headers = {name: value for name, value in message.headers.items() if not name.startswith(OWN_PREFIX)}
        return message._replace(data=b"".join(parts), headers=headers, payload=None)

    async def _remove_leftovers(self) -> None:
        while True:
            names = await self._call("get_objects_to_delete", self._upload_s, OBJECTS_AT_ONCE)
            names = [name for name in names if name not in self._uploading]
            if not names:
                return
            await self._remove(names)

    async def _remove(self, names: list[str]) -> None:
        """The objects first, then their names: what a crash leaves in between is done again."""
        await self._objects.delete(names)
        await self._call("forget_objects", names)

    async def _watch(self) -> None:
        """Others publish too: look whether there is more."""
        seen = -1
        while True:
            try:
                last = int(await self._call("get_latest_sequence"))
                if last != seen:
                    seen = last
                    self.followers.tell()
            except PenstockError as error:
                log.warning("Tarantool does not answer: %s", error)
            await asyncio.sleep(LOOK_S)

    async def _keep_swept(self) -> None:
        while True:
            try:
                await self.sweep()
            except PenstockError as error:
                log.warning("the sweep of streams will be tried again: %s", error)
            await asyncio.sleep(1.0)

    def _is_over(self, row: Sequence[Any]) -> bool:
        return self._ttl_s is not None and row[4] < int(self._clock.wall()) - self._ttl_s

    async def _call(self, function: str, *args: object) -> Any:
        body = await self._body(function, *args)
        return body[0] if body else None

    async def _body(self, function: str, *args: object) -> Any:
        try:
            return (await self._connection.call(function, list(args))).body
        except asynctnt.exceptions.TarantoolDatabaseError as error:
            raise InvalidRequestError(f"Tarantool refuses {function}: {error}") from error
        except (TarantoolError, OSError) as error:
            raise UnavailableError(f"Tarantool does not answer {function}: {error}; try again") from error


def _message(row: Sequence[Any]) -> StreamMessage:
    sequence, stored, object_name, subject, create_at = row[:5]
    headers = _texts(stored)
    payload = _own_payload(subject, object_name, headers) or Payload(object_name)
    return StreamMessage(sequence, subject, headers, object_name, create_at * 1000, b"", payload, -1)


def _texts(headers: Any) -> dict[str, str]:
    """Headers as text: any client of Tarantool may have stored others."""
    pairs = headers.items() if isinstance(headers, Mapping) else enumerate(headers or ())
    return {str(name): value if isinstance(value, str) else _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else json.dumps(value, default=str, ensure_ascii=False)


def _own_payload(subject: str, object_name: str, headers: Mapping[str, str]) -> Payload | None:
    """The payload of a message that a node has published; None if its publisher has put it into the store."""
    if re.fullmatch(re.escape(subject) + "/[0-9a-f]{32}", object_name) is None:
        return None
    try:
        return Payload(object_name, int(headers[SIZE]), int(headers[CHECKSUM], 16))
    except (KeyError, ValueError):
        return None
