"""Settings of the broker that are changed while it runs, as Kafka's dynamic configuration of brokers: what topics inherit that
set nothing themselves, and a few limits. What is set for one broker wins over what is set for all of them.

"b" | id of the broker, empty for all     {"version": 1, "config": the settings by name}, in the system tablet
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.broker.config_values import WholeNumber
from penstock.broker.errors import InvalidConfigError
from penstock.broker.system_tablet import TableTablet
from penstock.broker.topic_config import KEYS as TOPIC_KEYS
from penstock.broker.topic_config import TopicConfig
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.tablet import DeleteRange, Request, Write

log = logging.getLogger(__name__)

VERSION: Final = 1
PREFIX: Final = b"b"
ALL_BROKERS: Final = ""
CONNECTIONS_MAX: Final = "max.connections"

# Broker settings that are the default of a topic setting.
BROKER_NAMES: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
TOPIC_NAMES: Final = {broker_name: name for name, broker_name in BROKER_NAMES.items()}


class DynamicKey(NamedTuple):
    """A setting that can be changed while the broker runs."""

    check: Callable[[str], str]
    kind: str
    doc: str


_NO_REPLICATION: Final = "accepted for compatibility with Kafka tools, without effect: the storage group replicates the data"

DYNAMIC_KEYS: Final[dict[str, DynamicKey]] = {
    **{broker_name: DynamicKey(*TOPIC_KEYS[name][1:]) for broker_name, name in TOPIC_NAMES.items()},
    CONNECTIONS_MAX: DynamicKey(WholeNumber(1, (1 << 31) - 1), "int", "the maximum number of connections"),
    "leader.replication.throttled.rate": DynamicKey(WholeNumber(0), "long", _NO_REPLICATION),
    "follower.replication.throttled.rate": DynamicKey(WholeNumber(0), "long", _NO_REPLICATION),
    "replica.alter.log.dirs.io.max.bytes.per.second": DynamicKey(WholeNumber(0), "long", _NO_REPLICATION),
}


class DynamicConfig:
    """Dynamic settings by broker."""

    def __init__(self, tablet: TableTablet) -> None:
        self._tablet = tablet
        self._own: dict[str, dict[str, str]] = {}
        self.changing = asyncio.Lock()  # held from reading settings to changing them
        self.values: dict[str, str] = {}
        """What counts, by name."""
        self.topic_defaults: dict[str, str] = {}
        """What topics inherit, by the topics' own names."""
        self._load(tablet)

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        async with self.changing:
            self._load(tablet)

    def names(self) -> list[str]:
        """The brokers with dynamic settings; the empty name stands for all brokers."""
        return sorted(self._own)

    def own(self, name: str) -> dict[str, str]:
        """The dynamic settings of a broker, or of all."""
        return dict(self._own.get(name, {}))

    def check(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Validate and normalize settings. Raises InvalidRequestError, as Kafka does, for an unknown setting or invalid value."""
        fixed = sorted(settings.keys() - DYNAMIC_KEYS.keys())
        if fixed:
            raise InvalidRequestError(
                f"cannot update these configs dynamically: {', '.join(fixed)}; they are set where the broker is started, in "
                f"penstock.toml or its environment. While it runs it can be given {', '.join(sorted(DYNAMIC_KEYS))}"
            )
        checked: dict[str, str] = {}
        for name, value in settings.items():
            try:
                checked[name] = DYNAMIC_KEYS[name].check(value)
            except InvalidConfigError as error:
                raise InvalidRequestError(f"invalid value {value!r} for configuration {name}: {error}") from None
        try:
            TopicConfig(_topic_defaults(checked))
        except InvalidConfigError as error:
            raise InvalidRequestError(str(error)) from None
        return checked

    async def set(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace the settings of a broker; durable when this returns. Call it with `changing` held."""
        checked = self.check(settings)
        key = PREFIX + name.encode()
        if checked:
            packed = json.dumps({"version": VERSION, "config": checked}, sort_keys=True).encode()
            await self._tablet.execute(Request((Write(key, b"", head=packed),)))
            self._own[name] = checked
        else:
            await self._tablet.execute(Request((DeleteRange(key, key + b"\0"),), makes_room=True))
            self._own.pop(name, None)
        self._settle()

    def _load(self, tablet: TableTablet) -> None:
        self._own.clear()
        for key in tablet.keys(PREFIX, bytes([PREFIX[0] + 1])):
            fields = json.loads(tablet.head(key) or b"{}")
            if fields["version"] > VERSION:
                raise ConfigError(f"the settings of brokers have format {fields['version']}; upgrade Penstock")
            self._own[key[len(PREFIX) :].decode()] = fields["config"]
        self._settle()

    def _settle(self) -> None:
        """Recompute the effective settings, in place: holders of the mappings see the change."""
        self.values.clear()
        for name in sorted(self._own):  # the one for all brokers is the first
            self.values.update(self._own[name])
        self.topic_defaults.clear()
        self.topic_defaults.update(_topic_defaults(self.values))


def _topic_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    return {TOPIC_NAMES[name]: value for name, value in settings.items() if name in TOPIC_NAMES}
