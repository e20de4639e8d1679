"""Addresses of nodes, as they are written in settings."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.errors import ConfigError

DEFAULT_PORT: Final = 9092
EXAMPLE: Final = f"127.0.0.1:{DEFAULT_PORT}"
_PORT_MAX: Final = 65535


class AddressError(ConfigError):
    """A text is no list of addresses."""

    code = "address"


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str, setting: str) -> tuple[Address, ...]:
    """Parse `host:port`, several separated by commas, port 9092 if left out. Errors name the setting that holds the text."""
    addresses = tuple(_parse(item, setting) for item in map(str.strip, text.split(",")) if item)
    if not addresses:
        raise AddressError(f"{setting} is empty; write HOST:PORT, such as {EXAMPLE}")
    return addresses


def _parse(item: str, setting: str) -> Address:
    bracketed = item.startswith("[")
    host, _, port = item[1:].partition("]") if bracketed else item.partition(":")
    port = port.removeprefix(":") if bracketed else port
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX)):
        raise AddressError(f"{setting}: {item!r} is not an address; write HOST:PORT, such as {EXAMPLE}")
    return Address(host, int(port or DEFAULT_PORT))
