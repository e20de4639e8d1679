"""Sizes and times as a person writes them: 512KiB, 10GiB, 90s, 7d."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"([0-9]+)([kKMGT])(iB|B)")
_POWERS: Final = "_KMGT"
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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


def topic_setting(name: str, value: str) -> str:
    """A setting of a topic as Kafka's protocol has it: durations and sizes as numbers, unlimited retention as -1."""
    if value == "unlimited" and name.startswith("retention."):
        return "-1"
    try:
        if name.endswith(".ms"):
            return str(duration_ms(value))
        if name.endswith("bytes"):
            return str(size_bytes(value))
    except ValueError:
        pass  # a plain number, or what the node will refuse with its reason
    return value
