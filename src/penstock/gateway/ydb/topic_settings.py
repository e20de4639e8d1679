"""What YDB's clients set on a topic and Kafka has no name for, kept as JSON under one key of the topic's configuration."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from penstock.broker import Topic, TopicConfig
from penstock.core.errors import ConfigError
from penstock.gateway.ydb.protos import CODEC_NAMES, SUPPORTED_CODECS, Status, milliseconds, timestamp, topic
from penstock.gateway.ydb.statuses import StatusError, bad_request, unsupported

VERSION: Final = 1
DECLARED: Final = "penstock.consumers"
KEY: Final = "penstock.ydb"
IMPORTANT: Final = "penstock.important.consumers"
CONSUMERS_MAX: Final = 3000


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A consumer that was declared on a topic."""

    name: str
    read_from_ms: int = 0
    codecs: tuple[int, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)

    def to_proto(self, *, important: bool) -> Any:
        """As it is sent to clients."""
        made = topic.Consumer(name=self.name, important=important, attributes=self.attributes)
        made.supported_codecs.codecs.extend(self.codecs)
        if self.read_from_ms:
            made.read_from.CopyFrom(timestamp(self.read_from_ms))
        return made


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """All of it for one topic."""

    codecs: tuple[int, ...] = SUPPORTED_CODECS
    attributes: dict[str, str] = field(default_factory=dict)
    consumers: dict[str, ConsumerSettings] = field(default_factory=dict)
    write_bytes_per_s: int = 0  # of a partition; 0 is without limit
    write_burst_bytes: int = 0

    def to_json(self) -> str:
        """The stored form."""
        return json.dumps(
            {
                "version": VERSION,
                "codecs": self.codecs,
                "attributes": self.attributes,
                "write_bytes_per_s": self.write_bytes_per_s,
                "write_burst_bytes": self.write_burst_bytes,
                "consumers": [
                    asdict(consumer) for consumer in self.consumers.values() if consumer != ConsumerSettings(consumer.name)
                ],
            }
        )


def settings_of(stored: Topic) -> TopicSettings:
    """What is set on a topic; consumers that Kafka's tools have declared are consumers as well."""
    raw = stored.config[KEY]
    try:
        fields: dict[str, Any] = json.loads(raw) if raw else {"version": VERSION}
        if fields["version"] > VERSION:
            raise ConfigError(f"{KEY} of topic {stored.name!r} has format {fields['version']}; upgrade Penstock")
        details = {
            consumer["name"]: ConsumerSettings(
                consumer["name"], consumer["read_from_ms"], tuple(consumer["codecs"]), consumer["attributes"]
            )
            for consumer in fields.get("consumers", ())
        }
        codecs, attributes = tuple(fields.get("codecs", SUPPORTED_CODECS)), dict(fields.get("attributes", {}))
        speed, burst = int(fields.get("write_bytes_per_s", 0)), int(fields.get("write_burst_bytes", 0))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{KEY} of topic {stored.name!r} is not as YDB's clients leave it: {error}; unset it") from error
    consumers = {name: details.get(name, ConsumerSettings(name)) for name in stored.config.declared_consumers}
    return TopicSettings(codecs, attributes, consumers, speed, burst)


def check_codecs(codecs: Any) -> tuple[int, ...]:
    """Codecs that a topic or consumer is to allow; nothing said is all that there are."""
    for codec in codecs:
        if codec not in SUPPORTED_CODECS:
            known = ", ".join(CODEC_NAMES[codec] for codec in SUPPORTED_CODECS)
            raise unsupported(f"codec {codec} cannot be allowed on a topic; there are {known}")
    return tuple(sorted(set(codecs))) or SUPPORTED_CODECS


def check_speed(name: str, requested: int) -> int:
    """A limit in bytes; 0 is none."""
    if requested < 0:
        raise bad_request(f"{name} is {requested}; it cannot be negative")
    return requested


def parse_consumer(requested: Any) -> ConsumerSettings:
    """A consumer as a client declares it."""
    if not requested.name or "," in requested.name or "\0" in requested.name or requested.name != requested.name.strip():
        raise bad_request(
            f"{requested.name!r} cannot name a consumer: a name is not empty and has no comma, zero or blanks around it"
        )
    if requested.HasField("availability_period"):
        raise unsupported("availability_period is not known here; make the consumer important instead")
    read_from_ms = milliseconds(requested.read_from) if requested.HasField("read_from") else 0
    codecs = tuple(check_codecs(requested.supported_codecs.codecs)) if requested.supported_codecs.codecs else ()
    return ConsumerSettings(requested.name, read_from_ms, codecs, dict(requested.attributes))


def with_consumers(config: TopicConfig, settings: TopicSettings, important: set[str]) -> TopicConfig:
    """A topic's configuration with these settings, and these consumers as the ones that messages are kept for."""
    if len(settings.consumers) > CONSUMERS_MAX:
        raise bad_request(f"a topic has at most {CONSUMERS_MAX} consumers")
    return config.changed(
        {KEY: settings.to_json(), DECLARED: ",".join(settings.consumers), IMPORTANT: ",".join(sorted(important))}
    )


def alter_consumers(stored: Topic, request: Any) -> tuple[dict[str, ConsumerSettings], set[str]]:
    """Consumers and the important ones among them, after some were added, changed and dropped."""
    consumers = dict(settings_of(stored).consumers)
    important = set(stored.config.important_consumers)
    for name in request.drop_consumers:
        if consumers.pop(name, None) is None:
            raise StatusError(Status.NOT_FOUND, f"topic {stored.name!r} has no consumer {name!r} to drop")
        important.discard(name)
    for requested in request.add_consumers:
        if requested.name in consumers:
            raise StatusError(Status.ALREADY_EXISTS, f"topic {stored.name!r} has a consumer {requested.name!r} already")
        consumers[requested.name] = parse_consumer(requested)
        if requested.important:
            important.add(requested.name)
    for requested in request.alter_consumers:
        if requested.name not in consumers:
            raise StatusError(Status.NOT_FOUND, f"topic {stored.name!r} has no consumer {requested.name!r} to change")
        consumers[requested.name] = _alter(consumers[requested.name], requested)
        if requested.HasField("set_important"):
            (important.add if requested.set_important else important.discard)(requested.name)
    return consumers, important


def _alter(consumer: ConsumerSettings, requested: Any) -> ConsumerSettings:
    if requested.HasField("set_availability_period"):
        raise unsupported("availability_period is not known here; make the consumer important instead")
    if requested.HasField("set_read_from"):
        consumer = replace(consumer, read_from_ms=milliseconds(requested.set_read_from))
    if requested.HasField("set_supported_codecs"):
        consumer = replace(consumer, codecs=check_codecs(requested.set_supported_codecs.codecs))
    return replace(consumer, attributes=alter_attributes(consumer.attributes, requested.alter_attributes))


def alter_attributes(attributes: dict[str, str], changes: Any) -> dict[str, str]:
    """Attributes after a change; an empty value removes one."""
    merged = {**attributes, **dict(changes)}
    return {name: value for name, value in merged.items() if value}
