"""The options of a pipeline that begin with `kafka.`: those of readers, those of writers, and checks of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from penstock.core.errors import PenstockError
from penstock.kafka.client import ClientOptions
from penstock.spark import kafka_options, write_options
from penstock.spark.options import read_options
from penstock.spark.pipelines.section import Section

_READ_ONLY: Final = ("kafka.isolation.level", "kafka.check.crcs", "kafka.fetch.", "kafka.max.partition.fetch.bytes")
_WRITE_ONLY: Final = ("kafka.batch.size", "kafka.compression.type", "kafka.delivery.timeout.ms", "kafka.acks")
_SECURITY: Final = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")
_KNOWN: Final = frozenset(
    {
        *(kafka_options.USED | kafka_options.HARMLESS | kafka_options.REFUSED.keys()),
        *(write_options.USED | write_options.HARMLESS | write_options.REFUSED.keys()),
        "kafka.acks",
    }
)


def as_in_file(client: ClientOptions) -> ClientOptions:
    """Have errors of a client name the fields of a pipeline's file."""
    return replace(client, names=client.names._replace(bootstrap="brokers"))


def reading_options(given: Mapping[str, str]) -> dict[str, str]:
    """Those of a pipeline's options that are for readers."""
    return {name: value for name, value in given.items() if name not in _WRITE_ONLY}


def writing_options(given: Mapping[str, str]) -> dict[str, str]:
    """Those of a pipeline's options that are for writers."""
    return {name: value for name, value in given.items() if not name.startswith(_READ_ONLY)}


def check_options(top: Section, brokers: str, options: dict[str, str]) -> None:
    """Check options as the source and the sink do, but before they run, and with the line of the option."""
    for name in options:
        if not name.startswith("kafka."):
            top.blame(f"options.{name}", "only options that begin with kafka. go here; the others are fields of their own")
            return
    for name in list(options):
        if name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else "docs/spark.md lists them"
            top.blame(f"options.{name}", f"there is no option {name}; {hint}")
            options.pop(name)
    if not _is_valid(top, "brokers", brokers, {}):
        return
    security = {name: value for name, value in options.items() if name.startswith(_SECURITY)}
    for name, value in options.items():
        if name not in security:
            _is_valid(top, f"options.{name}", brokers, {name: value})
    if security:
        # Each means something only together with the others.
        _is_valid(top, f"options.{_blamed(security)}", brokers, security)


def _is_valid(top: Section, field: str, brokers: str, options: Mapping[str, str]) -> bool:
    where = {"kafka.bootstrap.servers": brokers}
    readers, writers = reading_options(options), writing_options(options)
    try:
        if readers or not options:
            read_options({**where, "subscribe": "x", **readers}, "any")
        if writers or not options:
            write_options.write_options({**where, "topic": "x", **writers})
    except PenstockError as error:
        top.blame(field, str(error))
        return False
    return True


def _blamed(security: Mapping[str, str]) -> str:
    """The option that decides which others are needed, or the first."""
    return "kafka.security.protocol" if "kafka.security.protocol" in security else next(iter(security))
