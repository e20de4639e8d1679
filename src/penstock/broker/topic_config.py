"""The configuration of a topic, under Kafka's names: what can be set, its defaults, and what it means for a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.broker.errors import InvalidConfigError
from penstock.broker.segment_config import NO_EFFECT, SEGMENT_KEYS, SegmentKey
from penstock.queue import PartitionConfig

DAY_MS = 24 * 3600 * 1000
MESSAGE_BYTES_MAX = 64 << 20

AS_SENT = "producer"
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"


class ConfigKey(NamedTuple):
    """One key: its default, how a value is checked, and what it is for."""

    default: str
    check: Callable[[str], str]
    kind: str
    doc: str


def _whole_number(low: int, high: int = (1 << 63) - 1) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            number = int(value)
        except ValueError:
            raise InvalidConfigError(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise InvalidConfigError(f"{number} is not within {low}..{high}")
        return str(number)

    return check


def _one_of(*allowed: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in allowed:
            raise InvalidConfigError(f"{value!r} is not one of: {', '.join(allowed)}")
        return value

    return check


def _segment_key(key: SegmentKey) -> ConfigKey:
    checks: dict[str, Callable[[str], str]] = {"boolean": _one_of("true", "false"), "list": str}
    return ConfigKey(key.default, checks.get(key.kind, _whole_number(key.low, key.high)), key.kind, NO_EFFECT)


KEYS: dict[str, ConfigKey] = {
    **{name: _segment_key(key) for name, key in SEGMENT_KEYS.items()},
    "cleanup.policy": ConfigKey("delete", _one_of("delete"), "list", "what becomes of old messages"),
    "compression.type": ConfigKey(
        AS_SENT, _one_of(AS_SENT, *CODECS), "string", "what messages are stored compressed with; producer: what they are sent in"
    ),
    "max.message.bytes": ConfigKey("1048588", _whole_number(0, MESSAGE_BYTES_MAX), "int", "the largest batch that is taken"),
    "message.timestamp.type": ConfigKey(
        CREATE_TIME, _one_of(CREATE_TIME, APPEND_TIME), "string", "whose clock a message is stamped by"
    ),
    "min.insync.replicas": ConfigKey(
        "1", _whole_number(1, 1), "int", "always 1: the storage group below, not brokers, keeps the copies"
    ),
    "retention.bytes": ConfigKey("-1", _whole_number(-1), "long", "how much of a partition is kept; -1 without limit"),
    "retention.ms": ConfigKey(str(7 * DAY_MS), _whole_number(-1), "long", "how long messages are kept; -1 without limit"),
    "penstock.limit.bytes": ConfigKey("-1", _whole_number(-1), "long", "over this a partition refuses writes; -1 never"),
    "penstock.limit.messages": ConfigKey("-1", _whole_number(-1), "long", "likewise, by number of messages"),
    "penstock.important.consumers": ConfigKey(
        "", str, "list", "consumers, separated by commas, for whom messages are kept until they have read them"
    ),
}


class TopicConfig:
    """What a topic sets itself; all else is as by default. Immutable."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self.own: dict[str, str] = {}
        for name, value in (own or {}).items():
            key = KEYS.get(name)
            if key is None:
                raise InvalidConfigError(f"unknown topic configuration {name!r}; known are {', '.join(sorted(KEYS))}")
            try:
                self.own[name] = key.check(value)
            except InvalidConfigError as error:
                raise InvalidConfigError(f"{name}: {error}") from None

    def __getitem__(self, name: str) -> str:
        return self.own.get(name, KEYS[name].default)

    def changed(self, sets: Mapping[str, str], deletes: frozenset[str] = frozenset()) -> TopicConfig:
        """The configuration with some keys set and some back at their default."""
        unknown = deletes - KEYS.keys()
        if unknown:
            raise InvalidConfigError(f"unknown topic configuration {min(unknown)!r}")
        return TopicConfig({name: value for name, value in {**self.own, **sets}.items() if name not in deletes})

    @property
    def uses_append_time(self) -> bool:
        """Whether messages are stamped when they are stored."""
        return self["message.timestamp.type"] == APPEND_TIME

    @property
    def codec(self) -> int | None:
        """What messages are stored compressed with; None: what they are sent in."""
        return CODECS.get(self["compression.type"])

    @property
    def important_consumers(self) -> list[str]:
        """Those for whom messages are kept until they have read them."""
        names = (name.strip() for name in self["penstock.important.consumers"].split(","))
        return [name for name in names if name]

    def for_partition(self) -> PartitionConfig:
        """What this asks of a partition."""
        return PartitionConfig(
            batch_bytes_max=int(self["max.message.bytes"]),
            retention_ms=_limit(self["retention.ms"]),
            retention_bytes=_limit(self["retention.bytes"]),
            limit_bytes=_limit(self["penstock.limit.bytes"]),
            limit_messages=_limit(self["penstock.limit.messages"]),
        )


def _limit(value: str) -> int | None:
    number = int(value)
    return None if number < 0 else number
