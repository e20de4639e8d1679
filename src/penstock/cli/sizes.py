"""Sizes, rates and times as a person reads them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATION: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"([0-9]+)([kKMGT])(iB|B)")
_POWERS: Final = "_KMGT"
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def shown_bytes(size: float) -> str:
    """A size with its unit."""
    for unit in _UNITS:
        if abs(size) < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError(size)


def shown_duration(duration_s: float) -> str:
    """A stretch of time, in its two largest units."""
    left = int(duration_s)
    parts = []
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length_s)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def size_bytes(text: str) -> int:
    """A size such as 512KiB, 10GiB or 5GB, in bytes; ValueError if it is none."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 512KiB, 10GiB or 5GB")
    step, power = 1024 if match[3] == "iB" else 1000, _POWERS.index(match[2].upper())
    return int(match[1]) * int(step**power)


def duration_ms(text: str) -> int:
    """A stretch of time such as 90s, 15m or 7d, in milliseconds; ValueError if it is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time such as 90s, 15m or 7d")
    return int(match[1]) * _UNIT_MS[match[2]]


duration_ms.__name__ = "time"  # as argparse names it when there is something wrong with one
