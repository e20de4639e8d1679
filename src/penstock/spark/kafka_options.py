"""Options that begin with `kafka.`: supported, ignored and refused ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.kafka.client import (
    Address,
    AddressError,
    BlockingClient,
    ClientOptions,
    ClientSecurity,
    SettingNames,
    parse_addresses,
)
from penstock.kafka.scram import DIGESTS
from penstock.spark.errors import OptionError

FIRST_NODE_TIMEOUT_S: Final = 15.0
USED: Final = frozenset(
    {
        "kafka.bootstrap.servers",
        "kafka.check.crcs",
        "kafka.client.id",
        "kafka.default.api.timeout.ms",
        "kafka.fetch.max.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.isolation.level",
        "kafka.max.partition.fetch.bytes",
        "kafka.request.timeout.ms",
        "kafka.sasl.jaas.config",
        "kafka.sasl.mechanism",
        "kafka.sasl.password",
        "kafka.sasl.username",
        "kafka.security.protocol",
        "kafka.ssl.endpoint.identification.algorithm",
        "kafka.ssl.keystore.location",
        "kafka.ssl.keystore.type",
        "kafka.ssl.truststore.location",
        "kafka.ssl.truststore.type",
    }
)

# They tune Kafka's own consumer: its membership in groups, its buffers and its upkeep of connections, none of which is used here.
HARMLESS: Final = frozenset(
    {
        "kafka.allow.auto.create.topics",
        "kafka.client.dns.lookup",
        "kafka.client.rack",
        "kafka.connections.max.idle.ms",
        "kafka.fetch.min.bytes",
        "kafka.group.instance.id",
        "kafka.heartbeat.interval.ms",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.metadata.max.age.ms",
        "kafka.partition.assignment.strategy",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
        "kafka.socket.connection.setup.timeout.ms",
    }
)

REFUSED: Final[Mapping[str, str]] = {
    "kafka.auto.offset.reset": "say with startingOffsets where to begin; a stream never jumps by itself",
    "kafka.enable.auto.commit": "positions are kept in the checkpoint, and in the broker with the option consumer",
    "kafka.group.id": "no consumer group takes part in reading; the option consumer has a stream commit its offsets under a name",
    "kafka.interceptor.classes": "interceptors are Java classes that see single records",
    "kafka.key.deserializer": "keys are always bytes; use Spark's functions on the column",
    "kafka.ssl.key.password": "keys are files in PEM without a password; restrict who may read the file",
    "kafka.ssl.keystore.password": "key stores are files in PEM, which have no password",
    "kafka.ssl.truststore.password": "trust stores are files in PEM, which have no password",
    "kafka.value.deserializer": "values are bytes; use valueFormat, or Spark's functions on the column",
}

_PROTOCOLS: Final = {"PLAINTEXT": (False, False), "SSL": (True, False), "SASL_PLAINTEXT": (False, True), "SASL_SSL": (True, True)}
_NAMES: Final = SettingNames(
    bootstrap="kafka.bootstrap.servers",
    timeout="kafka.request.timeout.ms",
    mechanism="kafka.sasl.mechanism",
    sign_in="kafka.sasl.jaas.config",
    tls="kafka.ssl.truststore.location",
)
_JAAS: Final = re.compile(r'(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


def client_options(options: Mapping[str, str]) -> ClientOptions:
    """The connection options of the cluster."""
    servers = options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
    if not servers:
        raise OptionError("say where the broker is: option kafka.bootstrap.servers, such as 127.0.0.1:9092")
    return ClientOptions(
        bootstrap=_addresses(servers),
        client_id=options.get("kafka.client.id", "penstock-spark"),
        request_timeout_s=number(options, "kafka.request.timeout.ms", 30_000) / 1000,
        api_timeout_s=number(options, "kafka.default.api.timeout.ms", 60_000) / 1000,
        security=_security(options),
        names=_NAMES,
    )


def planning_client(options: ClientOptions) -> BlockingClient:
    """A client for the driver, which fails soon if no broker can be reached at all; one that restarts is waited for."""
    return BlockingClient(replace(options, first_node_timeout_s=FIRST_NODE_TIMEOUT_S))


def _addresses(text: str) -> tuple[Address, ...]:
    try:
        return parse_addresses(text, _NAMES.bootstrap)
    except AddressError as error:
        raise OptionError(str(error)) from error


def number(options: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    text = options.get(name.lower(), str(default))
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise OptionError(f"{name} is {text!r}; it takes a whole number from {least} on")
    return value


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    """`true` or `false`."""
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is {text!r}; it takes true or false")
    return text == "true"


def choice(options: Mapping[str, str], name: str, *values: str) -> str:
    """One of some choices; the first is the default."""
    text = options.get(name.lower(), values[0])
    if text not in values:
        raise OptionError(f"{name} is {text!r}; it takes {' or '.join(values)}")
    return text


def _security(options: Mapping[str, str]) -> ClientSecurity:
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise OptionError(f"kafka.security.protocol is {protocol!r}; it takes {', '.join(_PROTOCOLS)}")
    tls, sasl = _PROTOCOLS[protocol]
    username, password = _credentials(options) if sasl else (None, None)
    for kind in ("truststore", "keystore"):
        is_given = f"kafka.ssl.{kind}.location" in options
        if is_given and options.get(f"kafka.ssl.{kind}.type", "JKS").upper() != "PEM":
            raise OptionError(
                f"kafka.ssl.{kind}.location must name a file in PEM, with kafka.ssl.{kind}.type=PEM; Java's own formats cannot "
                "be read here"
            )
        path = options.get(f"kafka.ssl.{kind}.location", "")
        if is_given and not Path(path).is_file():
            raise OptionError(
                f"kafka.ssl.{kind}.location: there is no file {path} on this machine; it must be at the same path on every "
                "machine that reads or writes"
            )
    return ClientSecurity(
        tls=tls,
        ca_file=options.get("kafka.ssl.truststore.location"),
        certificate_file=options.get("kafka.ssl.keystore.location"),
        checks_host=bool(options.get("kafka.ssl.endpoint.identification.algorithm", "https")),
        username=username,
        password=password,
        mechanism=_mechanism(options) if sasl else "PLAIN",
    )


def _mechanism(options: Mapping[str, str]) -> str:
    mechanism = options.get("kafka.sasl.mechanism", "").upper()
    if mechanism not in ("PLAIN", *DIGESTS):
        raise OptionError(f"kafka.sasl.mechanism is {mechanism!r}; it takes PLAIN, {', '.join(DIGESTS)}")
    return mechanism


def _credentials(options: Mapping[str, str]) -> tuple[str, str]:
    if "kafka.sasl.username" in options and "kafka.sasl.password" in options:
        return options["kafka.sasl.username"], options["kafka.sasl.password"]
    fields = {
        name: quoted.replace('\\"', '"').replace("\\\\", "\\") or bare
        for name, quoted, bare in _JAAS.findall(options.get("kafka.sasl.jaas.config", ""))
    }
    if "username" not in fields or "password" not in fields:
        raise OptionError(
            "SASL needs a user and a password: kafka.sasl.username and kafka.sasl.password, or both in kafka.sasl.jaas.config: "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";'
        )
    return fields["username"], fields["password"]
