"""Types of settings: how each is parsed from text or TOML, and how it is described."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_UNITS = {
    "": 1,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_SIZE = re.compile(r"([0-9]+)\s*([a-z]*)", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HOST_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_ADDRESS = re.compile(r"https?://[^\s,/]+/?")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
_PORT_MAX = 65535
_USER_SIZE_MAX = 1000


class Kind(NamedTuple):
    """`read` gives the value of raw text or of a TOML value, or raises ValueError; `allowed` finishes "it must be …"."""

    allowed: str
    read: Callable[[object], object]
    metavar: str
    choices: tuple[str, ...] = ()


def choice(*names: str) -> Kind:
    """One of some names."""

    def read(raw: object) -> object:
        if raw not in names:
            raise ValueError(raw)
        return raw

    return Kind("one of " + ", ".join(names), read, "WORD", names)


def whole_number(low: int, high: int) -> Kind:
    """A whole number within bounds."""

    def read(raw: object) -> object:
        number = int(raw) if isinstance(raw, str) else raw
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ValueError(raw)
        return number

    return Kind(f"a whole number within {low}..{high}", read, "N")


def duration(unit_ms: int, unit: str, low: int, high: int) -> Kind:
    """A stretch of time in whole units within bounds: as their number, or with a unit, such as 15m or 7d."""

    def read(raw: object) -> object:
        match = _DURATION.fullmatch(raw.strip()) if isinstance(raw, str) else None
        amount = raw if match is None else float(match[1]) * _DURATION_MS[match[2]] / unit_ms
        if isinstance(amount, float) and amount.is_integer():
            amount = int(amount)
        return whole_number(low, high).read(amount)

    return Kind(f"a number of {unit} within {low}..{high}, or a duration such as 15m or 7d", read, "TIME")


def or_none(kind: Kind) -> Kind:
    """The same, or the word none."""
    return Kind(f"{kind.allowed}, or none", lambda raw: None if raw == "none" else kind.read(raw), kind.metavar, kind.choices)


def _read_flag(raw: object) -> object:
    if isinstance(raw, bool):
        return raw
    words = {"true": True, "false": False}
    if not isinstance(raw, str) or raw not in words:
        raise ValueError(raw)
    return words[raw]


def _read_size(raw: object) -> object:
    if isinstance(raw, int) and not isinstance(raw, bool) and raw > 0:
        return raw
    match = _SIZE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is None or match[2].upper() not in _UNITS or int(match[1]) == 0:
        raise ValueError(raw)
    return int(match[1]) * _UNITS[match[2].upper()]


def _read_seconds(raw: object) -> object:
    match = _DURATION.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is not None:
        raw = float(match[1]) * _DURATION_MS[match[2]] / 1000
    seconds = float(raw) if isinstance(raw, str) else raw
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(raw)
    return float(seconds)


def _read_host(raw: object) -> object:
    if not isinstance(raw, str):
        raise ValueError(raw)
    try:
        ipaddress.ip_address(raw)
    except ValueError:
        if len(raw) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in raw.split(".")):
            raise
    return raw


def _read_path(raw: object) -> object:
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise ValueError(raw)
    return Path(raw).expanduser()


def _read_paths(raw: object) -> object:
    paths = raw.split(os.pathsep) if isinstance(raw, str) else raw
    if not isinstance(paths, list) or not paths:
        raise ValueError(raw)
    return tuple(_read_path(path) for path in paths)


def _read_user(raw: object) -> object:
    if not isinstance(raw, str) or not raw or "\0" in raw or len(raw.encode()) > _USER_SIZE_MAX:
        raise ValueError(raw)
    return raw


def _read_name(raw: object) -> object:
    if not isinstance(raw, str) or not _NAME.fullmatch(raw):
        raise ValueError(raw)
    return raw


def _read_peers(raw: object) -> object:
    """Addresses by name: from options and from the environment as name=address, from a file as a table."""
    if isinstance(raw, str):
        raw = [part for part in raw.split(",") if part]
    pairs = [str(item).partition("=")[::2] for item in raw] if isinstance(raw, list) else raw
    peers = dict(pairs) if isinstance(pairs, list | dict) else {}
    if not peers or len(peers) < len(pairs):  # type: ignore[arg-type]
        raise ValueError(raw)
    for name, address in peers.items():
        _read_name(name)
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            raise ValueError(raw)
    return peers


def _read_consoles(raw: object) -> object:
    """The same, without credentials: everyone who uses the console is shown these addresses."""
    consoles = _read_peers(raw)
    if not isinstance(consoles, dict) or any("@" in address for address in consoles.values()):
        raise ValueError(raw)
    return consoles


def _read_numbers(raw: object) -> object:
    numbers = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(numbers, list) or not numbers:
        raise ValueError(raw)
    return tuple(whole_number(0, (1 << 63) - 1).read(number) for number in numbers)


def _read_url(raw: object) -> object:
    if not isinstance(raw, str) or not _URL.fullmatch(raw):
        raise ValueError(raw)
    return raw


def _read_urls(raw: object) -> object:
    urls = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(urls, list) or not urls:
        raise ValueError(raw)
    return tuple(_read_url(url) for url in urls)


FLAG = Kind("true or false", _read_flag, "FLAG", ("true", "false"))
SIZE = Kind("a number of bytes above 0, such as 1048576 or 256MiB", _read_size, "BYTES")
SECONDS = Kind("a number of seconds above 0, or a duration such as 15m or 7d", _read_seconds, "TIME")
HOST = Kind("a host name or an IP address", _read_host, "HOST")
PATH = Kind("a directory", _read_path, "DIR")
PATHS = Kind("a list of directories", _read_paths, "DIR")
FILE = Kind("a file", _read_path, "FILE")
USER = Kind("a name", _read_user, "NAME")
SECRET = Kind("a text that is not empty", _read_user, "TEXT")
PORT = or_none(Kind(f"a port within 0..{_PORT_MAX} (0 picks a free one)", whole_number(0, _PORT_MAX).read, "PORT"))
NAME = Kind("letters, digits, - and _, at most 100 of them", _read_name, "NAME")
PEERS = Kind("other clusters, each as name=http://host:port", _read_peers, "NAME=URL")
CONSOLES = Kind("consoles of other clusters, each as name=http://host:port, without credentials", _read_consoles, "NAME=URL")
URL = Kind("an address of the form scheme://…", _read_url, "URL")
URLS = Kind("addresses of the form http://host:port, separated by commas", _read_urls, "URL,URL")
NUMBERS = Kind("whole numbers, separated by commas", _read_numbers, "N")
