"""The options of the sink: those of Spark's Kafka sink, by the same names, and a few more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from penstock.kafka.client import ClientOptions
from penstock.spark import kafka_options
from penstock.spark.errors import OptionError
from penstock.spark.kafka_options import boolean, choice, number
from penstock.spark.options import REGISTRY, value_registry
from penstock.spark.registry_client import SETTINGS, RegistryAddress

OPTIONS: Final = (
    "bootstrap.servers",
    "guarantee",
    "includeHeaders",
    "topic",
    "transactionTimeoutMs",
    "valueFormat",
    "valueRegistry",
    *(f"valueRegistry.{setting}" for setting in SETTINGS),
    "valueSubject",
)
USED: Final = frozenset({"kafka.batch.size", "kafka.compression.type", "kafka.delivery.timeout.ms"})
# They tune Kafka's own producer: how it waits, retries and keeps connections. Every batch is sent as soon as it is full, with an
# acknowledgement of all, as often as it takes within kafka.delivery.timeout.ms.
HARMLESS: Final = frozenset(
    {
        "kafka.buffer.memory",
        "kafka.client.dns.lookup",
        "kafka.connections.max.idle.ms",
        "kafka.enable.idempotence",
        "kafka.linger.ms",
        "kafka.max.block.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.max.request.size",
        "kafka.metadata.max.age.ms",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.retries",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.send.buffer.bytes",
    }
)
REFUSED: Final[Mapping[str, str]] = {
    "kafka.interceptor.classes": "interceptors are Java classes that see single records",
    "kafka.key.serializer": "keys are bytes or strings; use Spark's functions on the column",
    "kafka.partitioner.class": "name partitions in the column partition; without it keys are hashed as Kafka's clients do",
    "kafka.transactional.id": "the sink makes its own transactions; guarantee=exactly_once asks for them",
    "kafka.transaction.timeout.ms": "say transactionTimeoutMs",
    "kafka.value.serializer": "values are bytes or strings; use Spark's functions on the column",
}

CODECS: Final = {name: number for number, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))}
BATCH_BYTES: Final = 900_000  # below what topics take by default
TRANSACTION_TIMEOUT_MS: Final = 15 * 60_000  # the longest that brokers allow by default

EXACTLY_ONCE: Final = "exactly_once"
AT_LEAST_ONCE: Final = "at_least_once"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. Without a topic, each row has its own."""

    client: ClientOptions
    topic: str | None
    guarantee: str = EXACTLY_ONCE
    codec: int = CODECS["none"]
    batch_bytes: int = BATCH_BYTES
    delivery_timeout_s: float = 120.0
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    writes_headers: bool = True
    value_registry: RegistryAddress | None = None  # values are encoded with the last schema of the subject
    value_subject: str | None = None


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Read and check all options of a write."""
    # Spark adds the place of the checkpoint, and the name of a query, to the options of a stream.
    options = {name.lower(): value for name, value in given.items() if name.lower() not in ("checkpointlocation", "queryname")}
    if not options:
        raise OptionError("a table of a topic can only be read; write with format('penstock') and the option topic")
    _refuse_unknown(options)
    if options.get("kafka.acks", "all") not in ("all", "-1"):
        raise OptionError(
            f"kafka.acks is {options['kafka.acks']!r}; the sink counts a row as written when it is stored for good: all"
        )
    registry, subject = _value_encoding(options)
    return WriteOptions(
        client=kafka_options.client_options(options),
        topic=options.get("topic"),
        guarantee=choice(options, "guarantee", EXACTLY_ONCE, AT_LEAST_ONCE),
        codec=CODECS[choice(options, "kafka.compression.type", *CODECS)],
        batch_bytes=number(options, "kafka.batch.size", BATCH_BYTES),
        delivery_timeout_s=number(options, "kafka.delivery.timeout.ms", 120_000) / 1000,
        transaction_timeout_ms=number(options, "transactionTimeoutMs", TRANSACTION_TIMEOUT_MS),
        writes_headers=boolean(options, "includeHeaders", True),
        value_registry=registry,
        value_subject=subject,
    )


def _value_encoding(options: Mapping[str, str]) -> tuple[RegistryAddress | None, str | None]:
    """The registry and the subject that values are encoded with; none if they are bytes or strings."""
    registry = value_registry(options)
    if "valueformat" not in options:
        if registry is not None:
            raise OptionError("valueRegistry goes with valueFormat registry")
        return None, None
    choice(options, "valueFormat", REGISTRY)
    topic = options.get("topic")
    subject = options.get("valuesubject", None if topic is None else f"{topic}-value")
    if registry is None or subject is None:
        raise OptionError("valueFormat registry needs valueRegistry, and valueSubject unless the option topic names the topic")
    return registry, subject


def _refuse_unknown(options: Mapping[str, str]) -> None:
    connecting = {
        name for name in kafka_options.USED if name.startswith(("kafka.s", "kafka.client", "kafka.default", "kafka.req"))
    }
    used = {*connecting, *USED, "kafka.acks", "kafka.bootstrap.servers"}
    known = {name.lower(): name for name in (*OPTIONS, *used, *HARMLESS)}
    for name in options:
        if name in REFUSED:
            raise OptionError(f"option {name} is not taken: {REFUSED[name]}")
        if name == "path":
            raise OptionError("save() and start() take no path here; name the topic with the option topic")
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {known[near[0]]}?" if near else "docs/spark.md lists them"
            raise OptionError(f"there is no option {name} for writing; {hint}")
