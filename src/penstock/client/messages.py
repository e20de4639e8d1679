"""Messages as people who script give and get them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

Content = bytes | str | None
"""A key or a value: text is encoded as UTF-8, None is null (as a value, a tombstone)."""
Headers = Mapping[str, bytes | str | None]
Start = int | datetime | timedelta | Literal["earliest", "latest"]
"""Where to start: an offset, a time, how long ago, or an end of the log."""


class Message(NamedTuple):
    """A message as it is stored."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def time(self) -> datetime:
        """Its timestamp, in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def text(self) -> str:
        """Its value as text; empty for a tombstone. UnicodeDecodeError if the value is not UTF-8."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """Its value parsed as JSON; None for a tombstone."""
        return None if self.value is None else json.loads(self.value)


class MessageDraft(NamedTuple):
    """A message to be written; None for the partition or time leaves the choice to the client."""

    key: Content
    value: Content
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class WrittenMessage(NamedTuple):
    """Where a message was stored. The offset is -1 if the acknowledgement of a first attempt was lost."""

    topic: str
    partition: int
    offset: int


def encoded(content: Content) -> bytes | None:
    """A key or a value as bytes."""
    return content.encode() if isinstance(content, str) else content


def encoded_headers(headers: Headers | None) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as they are stored."""
    return tuple((name, encoded(value)) for name, value in (headers or {}).items())
