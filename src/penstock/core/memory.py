"""Memory of a process that serves for long: what is freed is kept for use again, what stays is not searched for garbage.

A process that moves large buffers must not return their pages to the system and fault them in again: measured on the write path
of a partition, that halves the processor time of a 64 KiB batch. Only glibc has these settings; elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import gc
import sys

KEPT_BYTES = 256 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_MAX = 32 << 20
# New objects between two searches for garbage in cycles, of which a node makes hardly any; Python's own 700 cost it a tenth of
# its time.
COLLECT_AFTER = (20_000, 4, 250)  # the second search goes over 80,000 at most, and stops everything for about 25 ms


def keep_freed_memory() -> bool:
    """Have the allocator keep up to 256 MiB for use again; whether it can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def collect_later() -> None:
    """Have what is there searched for garbage now, and nothing more until `collect_seldom`: what a start loads stays, and to go
    through it again and again as it grows takes a third of the start."""
    gc.collect()
    gc.disable()


def collect_seldom() -> None:
    """Look for garbage seldom, and never among what is there now: to go through the modules alone stops everything for 50 ms."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()
