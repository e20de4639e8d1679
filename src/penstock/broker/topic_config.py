"""The configuration of a topic, under Kafka's names: what can be set, its defaults, and what it means for a partition."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.broker.config_values import BOOLEAN, Check, OneOf, SomeOf, WholeNumber, gzip_level, ratio
from penstock.broker.errors import InvalidConfigError
from penstock.broker.schema_rules import STRATEGIES, SchemaRule
from penstock.broker.segment_config import INT_MAX, NO_EFFECT, SEGMENT_KEYS, WITHOUT_EFFECT, SegmentKey
from penstock.broker.timestamps import UNLIMITED_MS, TimestampLimits
from penstock.queue import PartitionConfig

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
MESSAGE_BYTES_MAX = 64 << 20
COPIES_MAX = 3  # that a storage group over several nodes keeps

NOT_TIERED = f"{WITHOUT_EFFECT}: there is no tiered storage"
AS_SENT = "producer"
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPACT, DELETE = "compact", "delete"
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"
LIMIT = WholeNumber(-1, unlimited=-1)
TIME_LIMIT = WholeNumber(0, unlimited=UNLIMITED_MS)
_BY_TOPIC = "io.confluent.kafka.serializers.subject.TopicNameStrategy"


NO_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigKey(NamedTuple):
    """One key: its default, how a value is checked, and what it is for."""

    default: str
    check: Check
    kind: str
    doc: str


def _segment_key(key: SegmentKey) -> ConfigKey:
    checks: dict[str, Check] = {"boolean": BOOLEAN, "list": str}
    return ConfigKey(key.default, checks.get(key.kind, WholeNumber(key.low, key.high)), key.kind, NO_EFFECT)


KEYS: dict[str, ConfigKey] = {
    **{name: _segment_key(key) for name, key in SEGMENT_KEYS.items()},
    "cleanup.policy": ConfigKey(
        DELETE,
        SomeOf((DELETE, COMPACT)),
        "list",
        "how old messages are cleaned up: delete removes them by retention time and size, compact keeps the "
        "latest message of each key; empty keeps everything",
    ),
    "compression.gzip.level": ConfigKey(
        "-1", gzip_level, "int", "how much compression.type=gzip compresses: 1 (fastest) to 9, -1 is the default of gzip"
    ),
    "compression.lz4.level": ConfigKey(
        "9", WholeNumber(1, 17), "int", "how much compression.type=lz4 compresses: 1 (fastest) to 17"
    ),
    "compression.zstd.level": ConfigKey(
        "3", WholeNumber(-131072, 22), "int", "how much compression.type=zstd compresses: -131072 (fastest) to 22"
    ),
    "compression.type": ConfigKey(
        AS_SENT,
        OneOf((AS_SENT, *CODECS)),
        "string",
        "the codec messages are stored with; producer keeps the codec of the producer",
    ),
    "delete.retention.ms": ConfigKey(
        str(DAY_MS), WholeNumber(0), "long", "how long tombstones (messages without a value) are kept after they are compacted"
    ),
    "local.retention.bytes": ConfigKey("-2", WholeNumber(-2), "long", NOT_TIERED),
    "local.retention.ms": ConfigKey("-2", WholeNumber(-2), "long", NOT_TIERED),
    "max.compaction.lag.ms": ConfigKey(
        str(UNLIMITED_MS), WholeNumber(1, unlimited=UNLIMITED_MS), "long", "the longest time a message may stay uncompacted"
    ),
    "max.message.bytes": ConfigKey(
        "1048588", WholeNumber(0, MESSAGE_BYTES_MAX), "int", "the largest record batch, in bytes, that is accepted"
    ),
    "message.downconversion.enable": ConfigKey(
        "true",
        BOOLEAN,
        "boolean",
        f"{WITHOUT_EFFECT}: old message formats are not served",
    ),
    "message.timestamp.after.max.ms": ConfigKey(
        str(HOUR_MS), WholeNumber(0), "long", "how far a producer's timestamp may be ahead of the broker's clock"
    ),
    "message.timestamp.before.max.ms": ConfigKey(
        str(UNLIMITED_MS),
        TIME_LIMIT,
        "long",
        "how far a producer's timestamp may be behind the broker's clock",
    ),
    "message.timestamp.type": ConfigKey(
        CREATE_TIME,
        OneOf((CREATE_TIME, APPEND_TIME)),
        "string",
        "the timestamp of a message: CreateTime is the producer's, LogAppendTime the broker's",
    ),
    "min.cleanable.dirty.ratio": ConfigKey(
        "0.5", ratio, "double", "the share of a partition that must be uncompacted before compaction starts"
    ),
    "min.compaction.lag.ms": ConfigKey("0", WholeNumber(0), "long", "the shortest time a message stays uncompacted"),
    "min.insync.replicas": ConfigKey(
        "1",
        WholeNumber(1, COPIES_MAX),
        "int",
        f"{WITHOUT_EFFECT}: the storage group decides how many copies a write needs",
    ),
    "remote.log.copy.disable": ConfigKey("false", BOOLEAN, "boolean", NOT_TIERED),
    "remote.log.delete.on.disable": ConfigKey("false", BOOLEAN, "boolean", NOT_TIERED),
    "remote.storage.enable": ConfigKey(
        "false", OneOf(("false",)), "boolean", f"{WITHOUT_EFFECT}: always false, all data is in the storage group"
    ),
    "retention.bytes": ConfigKey(
        "-1",
        LIMIT,
        "long",
        "the size a partition is kept at; it may exceed it by a quarter or a segment; -1 is no limit",
    ),
    "retention.ms": ConfigKey(str(7 * DAY_MS), LIMIT, "long", "how long messages are kept; -1 is no limit"),
    "segment.bytes": ConfigKey(
        "1073741824",
        WholeNumber(14, INT_MAX),
        "int",
        "the size of a segment, the unit of retention, clamped to 128 KiB..8 MiB; the active segment of a "
        "compacted topic is not compacted",
    ),
    "segment.ms": ConfigKey(str(7 * DAY_MS), WholeNumber(1), "long", "the age at which a segment is rolled"),
    "penstock.limit.bytes": ConfigKey("-1", LIMIT, "long", "the size over which a partition refuses writes; -1 is no limit"),
    "penstock.limit.messages": ConfigKey(
        "-1",
        LIMIT,
        "long",
        "the number of messages over which a partition refuses writes; -1 is no limit",
    ),
    "penstock.retention.messages": ConfigKey(
        "-1", LIMIT, "long", "how many of the latest messages of a partition are kept; -1 is no limit"
    ),
    "penstock.important.consumers": ConfigKey(
        "", str, "list", "comma-separated consumers; messages are not deleted before these have read them"
    ),
    "penstock.headers.visible": ConfigKey(
        "false",
        BOOLEAN,
        "boolean",
        "whether Kafka clients see the internal headers of other gateways, ydb.* and penstock.*",
    ),
    "penstock.consumers": ConfigKey(
        "", str, "list", "comma-separated consumers declared on the topic; their committed offsets do not expire"
    ),
    "penstock.schema.validation": ConfigKey(
        "none",
        OneOf(("none", "id", "full")),
        "string",
        "id refuses messages whose value does not begin with the id of a schema that is registered for the topic, full also "
        "those that do not match it",
    ),
    "confluent.key.schema.validation": ConfigKey(
        "false",
        BOOLEAN,
        "boolean",
        "whether keys are checked; penstock.schema.validation=full decodes them as well",
    ),
    "confluent.value.schema.validation": ConfigKey(
        "false", BOOLEAN, "boolean", "true is the same as penstock.schema.validation=id"
    ),
    "confluent.key.subject.name.strategy": ConfigKey(
        _BY_TOPIC, OneOf(tuple(STRATEGIES)), "string", "how the subject of a key is named, where keys are checked"
    ),
    "confluent.value.subject.name.strategy": ConfigKey(
        _BY_TOPIC, OneOf(tuple(STRATEGIES)), "string", "how the subject of a value is named, where values are checked"
    ),
    "penstock.ydb": ConfigKey(
        "", str, "string", "settings of YDB clients that have no other key, as JSON; written by those clients"
    ),
}


def unknown_topic_config(name: str) -> InvalidConfigError:
    """The error of a key that does not exist, with the one that was probably meant."""
    close = get_close_matches(name, KEYS, n=1)
    what = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(KEYS))}"
    return InvalidConfigError(f"unknown topic configuration {name!r}; {what}")


class TopicConfig:
    """The settings of a topic; everything else comes from the broker's dynamic defaults or the built-in ones. Immutable."""

    def __init__(self, own: Mapping[str, str] | None = None, defaults: Mapping[str, str] = NO_DEFAULTS) -> None:
        self.own: dict[str, str] = {}
        self.defaults = defaults  # which may change while this is used
        for name, value in (own or {}).items():
            key = KEYS.get(name)
            if key is None:
                raise unknown_topic_config(name)
            try:
                self.own[name] = key.check(value)
            except InvalidConfigError as error:
                raise InvalidConfigError(f"{name}: {error}") from None
        if int(self["min.compaction.lag.ms"]) > int(self["max.compaction.lag.ms"]):
            raise InvalidConfigError("min.compaction.lag.ms is larger than max.compaction.lag.ms: no message could satisfy both")

    def __getitem__(self, name: str) -> str:
        value = self.own.get(name)
        if value is None:
            value = self.defaults.get(name)
        return KEYS[name].default if value is None else value

    def under(self, defaults: Mapping[str, str]) -> TopicConfig:
        """The same, with what the broker has for all topics that do not set it themselves. It is not checked again: what the
        broker has is changed without asking topics."""
        changed = copy(self)
        changed.defaults = defaults
        return changed

    def changed(self, sets: Mapping[str, str], deletes: frozenset[str] = frozenset()) -> TopicConfig:
        """The configuration with some keys set and some reset to their defaults."""
        unknown = deletes - KEYS.keys()
        if unknown:
            raise unknown_topic_config(min(unknown))
        own = {name: value for name, value in {**self.own, **sets}.items() if name not in deletes}
        return TopicConfig(own, self.defaults)

    @property
    def is_compacted(self) -> bool:
        """Whether only the last message of each key is kept; every message must have a key then."""
        return COMPACT in self["cleanup.policy"].split(",")

    @property
    def uses_append_time(self) -> bool:
        """Whether the topic uses LogAppendTime."""
        return self["message.timestamp.type"] == APPEND_TIME

    @property
    def timestamp_limits(self) -> TimestampLimits | None:
        """The limits of producer timestamps; None without limits, or with LogAppendTime."""
        limits = TimestampLimits(int(self["message.timestamp.before.max.ms"]), int(self["message.timestamp.after.max.ms"]))
        return None if self.uses_append_time or min(limits) == UNLIMITED_MS else limits

    @property
    def codec(self) -> int | None:
        """The codec that messages are stored with; None keeps the producer's."""
        return CODECS.get(self["compression.type"])

    @property
    def codec_level(self) -> int | None:
        """The level that messages are recompressed with; None is the default of the codec."""
        name = f"compression.{self['compression.type']}.level"
        return int(self[name]) if name in KEYS and self[name] != KEYS[name].default else None

    @property
    def schema_rule(self) -> SchemaRule | None:
        """Which schemas messages must name; None if they need not."""
        checks_key = self["confluent.key.schema.validation"] == "true"
        validation = self["penstock.schema.validation"]
        checks_value = validation != "none" or self["confluent.value.schema.validation"] == "true"
        if not checks_key and not checks_value:
            return None
        return SchemaRule(
            STRATEGIES[self["confluent.key.subject.name.strategy"]] if checks_key else None,
            STRATEGIES[self["confluent.value.subject.name.strategy"]] if checks_value else None,
            decodes=validation == "full",
        )

    @property
    def shows_own_headers(self) -> bool:
        """Whether Kafka clients see the internal headers of other gateways."""
        return self["penstock.headers.visible"] == "true"

    @property
    def important_consumers(self) -> list[str]:
        """Consumers for which messages are kept until they have read them."""
        return _names(self["penstock.important.consumers"])

    @property
    def declared_consumers(self) -> list[str]:
        """Consumers declared on the topic, including the important ones: their committed offsets do not expire."""
        return list(dict.fromkeys(_names(self["penstock.consumers"]) + self.important_consumers))

    def for_partition(self) -> PartitionConfig:
        """The configuration of a partition."""
        is_cut = DELETE in self["cleanup.policy"].split(",")
        return PartitionConfig(
            batch_bytes_max=int(self["max.message.bytes"]),
            retention_ms=_limit(self["retention.ms"]) if is_cut else None,
            retention_bytes=_limit(self["retention.bytes"]) if is_cut else None,
            retention_messages=_limit(self["penstock.retention.messages"]) if is_cut else None,
            limit_bytes=_limit(self["penstock.limit.bytes"]),
            limit_messages=_limit(self["penstock.limit.messages"]),
            is_compacted=self.is_compacted,
            delete_retention_ms=int(self["delete.retention.ms"]),
            min_compaction_lag_ms=int(self["min.compaction.lag.ms"]),
            max_compaction_lag_ms=int(self["max.compaction.lag.ms"]),
            segment_ms=int(self["segment.ms"]),
            segment_bytes=int(self["segment.bytes"]),
            min_dirty_ratio=float(self["min.cleanable.dirty.ratio"]),
        )


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]


def _limit(value: str) -> int | None:
    number = int(value)
    return None if number < 0 else number
