"""Keeping freed memory: a process that moves large buffers must not return their pages to the system and fault them in again.

Measured on the write path of a partition, that halves the processor time of a 64 KiB batch. Only glibc has these settings;
elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import sys

KEPT_BYTES = 256 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_MAX = 32 << 20


def keep_freed_memory() -> bool:
    """Have the allocator keep up to 256 MiB for use again; whether it can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))
