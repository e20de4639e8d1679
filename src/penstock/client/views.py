"""What the admin API tells of topics, groups, streams and pipelines, in types. Fields that a newer node adds are ignored."""

from __future__ import annotations

from typing import Any

import msgspec


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic. Rates are those of the last seconds; `retention_ms` and `retention_bytes` are None without a limit."""

    name: str
    id: str
    partitions: int
    messages: int
    bytes: int
    produce_messages_per_s: float
    produce_bytes_per_s: float
    fetch_messages_per_s: float
    fetch_bytes_per_s: float
    retention_ms: int | None
    retention_bytes: int | None
    cleanup_policy: str
    is_internal: bool
    consumers: int
    last_message_ms: int | None


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition: messages from `start` up to, not including, `end`; `stable` is the end of what is committed."""

    partition: int
    state: str
    start: int
    end: int
    stable: int
    bytes: int
    last_append_ms: int | None


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a topic's configuration."""

    name: str
    value: str
    default: str
    is_default: bool
    doc: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group, a YT consumer or a durable consumer of streams. `lag_seconds` is the age of its first unread message,
    `retention_share` the share of its retention that this message has used up: at 1 it is deleted unread."""

    name: str
    kind: str
    state: str
    lag_messages: int
    lag_bytes: int
    lag_seconds: float | None
    retention_share: float | None
    topics: list[str]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group and its partitions, by topic."""

    id: str
    client_id: str
    host: str
    partitions: dict[str, list[int]]


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group is in a partition; `position` is None if it has committed nothing there."""

    topic: str
    partition: int
    position: int | None
    start: int | None
    end: int | None
    lag_messages: int | None
    lag_seconds: float | None
    member: str | None


class GroupDetail(Group, frozen=True, kw_only=True):
    """A group with its members and committed offsets."""

    members: list[Member]
    positions: list[CommittedOffset]


class OffsetMove(msgspec.Struct, frozen=True, kw_only=True):
    """A committed offset before and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A subject of streams."""

    subject: str
    last_sequence: int | None
    messages: int | None
    bytes: int | None
    consumers: int


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline reported last; `is_alive` is false if it has not reported recently."""

    name: str
    kind: str
    state: str
    is_alive: bool
    source: Any
    target: Any
    host: str | None
    started_ms: int | None
    updated_ms: int | None
    batches: int | None
    rows_read: int | None
    rows_written: int | None
    rows_per_s: float | None
    lag_rows: int | None
    dead_letters: int | None
    last_error: Any


# `list` is a method of what these are asked from.
Partitions = list[Partition]
OffsetMoves = list[OffsetMove]
