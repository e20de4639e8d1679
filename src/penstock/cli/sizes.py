"""Sizes, rates and times as a person reads them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shown_bytes(size: float) -> str:
    """A size with its unit."""
    for unit in _UNITS:
        if abs(size) < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError(size)


def counted(count: int, noun: str) -> str:
    """A number of things: `1 topic`, `2 topics`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown_duration(duration_s: float) -> str:
    """A stretch of time, in its two largest units."""
    left = int(duration_s)
    parts = []
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length_s)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
