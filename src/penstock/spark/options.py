"""The options of the source: those of Spark's Kafka source, by the same names and with the same defaults, and a few more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal

from penstock.kafka.client import EARLIEST, LATEST, ClientOptions, TopicPartition
from penstock.spark import kafka_options
from penstock.spark.errors import OptionError
from penstock.spark.kafka_options import boolean, choice, number
from penstock.spark.registry_client import SETTINGS, RegistryAddress, registry_address

ReadMode = Literal["batch", "stream", "any"]

# groupIdPrefix and fetchOffset.* steer parts of the Kafka source that are not here: consumer groups of its own making, and its
# own way of trying again. They do no harm.
OPTIONS: Final = (
    "assign",
    "bootstrap.servers",
    "columns",
    "consumer",
    "direct",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "lease",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTimestampDisorder",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "onMalformed",
    "pushFilters",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "valueFormat",
    "valueRegistry",
    *(f"valueRegistry.{setting}" for setting in SETTINGS),
    "valueSchema",
    "valueSubject",
)
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
REGISTRY: Final = "registry"
VALUE_FORMATS: Final = ("json", "avro", "protobuf", REGISTRY, "debezium-json", "debezium-avro")
FETCH_BYTES: Final = 16 << 20
_DELAY: Final = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")
_DELAY_S: Final = {"ms": 0.001, None: 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription: named topics, a pattern, or single partitions."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        return "assign " + ", ".join(map(str, self.partitions)) if self.partitions else f"subscribe {','.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading begins or ends: offsets a partition (EARLIEST and LATEST among them), times a partition, or one time or
    one of the two ends for all. The first that is given counts."""

    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    end: int = EARLIEST


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read."""

    client: ClientOptions
    subscription: Subscription
    starting: Position
    ending: Position
    falls_to_latest: bool = False
    fails_on_data_loss: bool = True
    is_committed: bool = False
    checks_crcs: bool = True
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_max_s: float = 900.0
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    disorder_max_s: float | None = None
    pushes_filters: bool = False
    poll_timeout_s: float = 120.0
    fetch_bytes: int = FETCH_BYTES
    fetch_wait_ms: int = 500
    consumer: str | None = None
    is_direct: bool = True
    is_leased: bool = True
    columns: tuple[str, ...] = COLUMNS[:-1]
    value_format: str | None = None
    value_schema: str | None = None
    value_registry: RegistryAddress | None = None
    value_subject: str | None = None
    fails_on_malformed: bool = False


def read_options(given: Mapping[str, str], wanted: ReadMode) -> ReadOptions:
    """Read and check all options of a batch or streaming read, or those of either where it is not known yet which it is."""
    options = {name.lower(): value for name, value in given.items()}
    if not options:
        raise OptionError("this table has no options: create it without columns, which it takes from OPTIONS")
    _refuse_unknown(options)
    if wanted == "stream":
        _refuse(options, ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"), "a stream has no end")
        _refuse(options, ("pushFilters", "maxTimestampDisorder"), "Spark pushes filters down to batches only")
    elif wanted == "batch":
        only = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "consumer")
        _refuse(options, only, "it is about the micro-batches of a stream")
    least = _optional_number(options, "minOffsetsPerTrigger")
    most = _optional_number(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}")
    isolation = choice(options, "kafka.isolation.level", "read_uncommitted", "read_committed")
    fetch_bytes = number(options, "kafka.fetch.max.bytes", FETCH_BYTES)
    value_format, value_schema = _value_format(options)
    return ReadOptions(
        client=kafka_options.client_options(options),
        subscription=_subscription(options),
        starting=_starting(options, wanted),
        ending=_ending(options),
        falls_to_latest=choice(options, "startingOffsetsByTimestampStrategy", "error", "latest") == "latest",
        fails_on_data_loss=boolean(options, "failOnDataLoss", True),
        is_committed=isolation == "read_committed",
        checks_crcs=boolean(options, "kafka.check.crcs", True),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_max_s=_delay(options, "maxTriggerDelay", "15m"),
        pushes_filters=boolean(options, "pushFilters", False),
        disorder_max_s=_delay(options, "maxTimestampDisorder", "0s") if "maxtimestampdisorder" in options else None,
        partitions_min=_optional_number(options, "minPartitions"),
        records_per_partition_max=_optional_number(options, "maxRecordsPerPartition"),
        poll_timeout_s=number(options, "kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        fetch_bytes=number(options, "kafka.max.partition.fetch.bytes", fetch_bytes),
        fetch_wait_ms=number(options, "kafka.fetch.max.wait.ms", 500),
        consumer=options.get("consumer"),
        is_direct=boolean(options, "direct", True),
        is_leased=boolean(options, "lease", True),
        columns=_columns(options),
        value_format=value_format,
        value_schema=value_schema,
        value_registry=value_registry(options),
        value_subject=_value_subject(options),
        fails_on_malformed=choice(options, "onMalformed", "null", "fail") == "fail",
    )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*OPTIONS, *kafka_options.USED, *kafka_options.HARMLESS)}
    for name in options:
        if name in kafka_options.REFUSED:
            raise OptionError(f"option {name} is not taken: {kafka_options.REFUSED[name]}")
        if name == "path":
            raise OptionError("load() takes no path here; name the topic with the option subscribe")
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {known[near[0]]}?" if near else "docs/spark.md lists them"
            raise OptionError(f"there is no option {name}; {hint}")


def _refuse(options: Mapping[str, str], names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if name.lower() in options:
            raise OptionError(f"option {name} does not fit here: {reason}")


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"say what to read with one of subscribe, subscribePattern and assign; {said}")
    text = options[given[0].lower()].strip()
    if given[0] == "subscribe":
        names = tuple(dict.fromkeys(name for name in (name.strip() for name in text.split(",")) if name))
        if names:
            return Subscription(names=names)
    elif given[0] == "subscribePattern" and text:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern {text!r} is no regular expression: {error}") from error
        return Subscription(pattern=text)
    elif given[0] == "assign":
        by_topic = _json_object("assign", text)
        if by_topic and all(isinstance(numbers, list) and numbers for numbers in by_topic.values()):
            partitions = [
                TopicPartition(topic, _partition("assign", number)) for topic, numbers in by_topic.items() for number in numbers
            ]
            return Subscription(partitions=tuple(sorted(set(partitions))))
        raise OptionError(f'assign is {text!r}; it takes partitions by topic, such as {{"topicA":[0,1]}}')
    raise OptionError(f"{given[0]} is empty; name what to read")


def _starting(options: Mapping[str, str], wanted: ReadMode) -> Position:
    default = "earliest" if wanted == "batch" else "latest"
    position = _position(options, "starting", default)
    if wanted == "batch" and position.timestamp_ms is None and position.timestamps_ms is None:
        ends = [position.end] if position.offsets is None else position.offsets.values()
        if LATEST in ends:
            raise OptionError("startingOffsets of a batch read cannot be latest (-1): nothing would be read")
    return position


def _ending(options: Mapping[str, str]) -> Position:
    position = _position(options, "ending", "latest")
    if position.timestamp_ms is not None or position.timestamps_ms is not None:
        return position
    ends = [position.end] if position.offsets is None else position.offsets.values()
    if EARLIEST in ends:
        raise OptionError("endingOffsets cannot be earliest (-2): nothing would be read")
    return position


def _position(options: Mapping[str, str], which: str, default: str) -> Position:
    if f"{which}timestamp" in options:
        return Position(timestamp_ms=number(options, f"{which}Timestamp", 0, least=0))
    by_time = f"{which}OffsetsByTimestamp"
    if by_time.lower() in options:
        return Position(timestamps_ms=_partition_offsets(by_time, options[by_time.lower()], least=0))
    name = f"{which}Offsets"
    text = options.get(name.lower(), default).strip()
    if text.lower() in ("earliest", "latest"):
        return Position(end=EARLIEST if text.lower() == "earliest" else LATEST)
    return Position(offsets=_partition_offsets(name, text, least=EARLIEST))


def _partition_offsets(name: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    """Numbers by topic and partition, such as {"topicA":{"0":23,"1":-1}}."""
    offsets = {}
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, dict):
            raise OptionError(f'{name} is {text!r}; it takes offsets by topic and partition, such as {{"topicA":{{"0":23}}}}')
        for partition, value in partitions.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OptionError(
                    f"{name} has {value!r} for partition {partition} of {topic!r}; it takes numbers from {least} on"
                )
            offsets[TopicPartition(topic, _partition(name, partition))] = value
    return offsets


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name} is {text!r}, which is neither a word it knows nor JSON: {error}") from error
    if not isinstance(value, dict):
        raise OptionError(f"{name} is {text!r}; it takes a JSON object with topics in it")
    return value


def _partition(name: str, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise OptionError(f"{name} has {value!r} where the number of a partition is wanted")
    return int(text)


def _optional_number(options: Mapping[str, str], name: str) -> int | None:
    return number(options, name, 1) if name.lower() in options else None


def _delay(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name.lower(), default)
    match = _DELAY.fullmatch(text.lower())
    if match is None:
        raise OptionError(f"{name} is {text!r}; it takes a duration such as 30s or 15m")
    return int(match[1]) * _DELAY_S[match[2]]


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    has_headers = boolean(options, "includeHeaders", False)
    if "columns" not in options:
        return COLUMNS if has_headers else COLUMNS[:-1]
    by_name = {name.lower(): name for name in COLUMNS}
    names = [name.strip() for name in options["columns"].split(",") if name.strip()]
    for name in names:
        if name.lower() not in by_name:
            raise OptionError(f"columns names {name!r}; there are {', '.join(COLUMNS)}")
    columns = tuple(dict.fromkeys(by_name[name.lower()] for name in names))
    if not columns:
        raise OptionError(f"columns is empty; there are {', '.join(COLUMNS)}")
    return columns


def _value_format(options: Mapping[str, str]) -> tuple[str | None, str | None]:
    if "valueformat" not in options:
        _refuse(options, ("valueSchema", "valueRegistry", "valueSubject", "onMalformed"), "it goes with valueFormat")
        return None, None
    name = choice(options, "valueFormat", *VALUE_FORMATS)
    if name == REGISTRY and "valueregistry" not in options:
        raise OptionError("valueFormat registry needs valueRegistry: the address of a schema registry")
    return name, options.get("valueschema")


def value_registry(options: Mapping[str, str]) -> RegistryAddress | None:
    """The registry that options in lower case name, with its sign-in."""
    settings = {name: options[f"valueregistry.{name}"] for name in SETTINGS if f"valueregistry.{name}" in options}
    url = options.get("valueregistry")
    if url is None:
        if settings:
            raise OptionError(f"valueRegistry.{next(iter(settings))} goes with valueRegistry")
        return None
    return registry_address(url, settings)


def _value_subject(options: Mapping[str, str]) -> str | None:
    """The subject of the values: that of the topic, if one is named."""
    topics = [topic.strip() for topic in options.get("subscribe", "").split(",") if topic.strip()]
    return options.get("valuesubject", f"{topics[0]}-value" if len(topics) == 1 else None)
