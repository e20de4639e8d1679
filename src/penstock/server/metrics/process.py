"""What the operating system says of this process."""

from __future__ import annotations

import os
import resource
from typing import Final, NamedTuple

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessReading(NamedTuple):
    """CPU time, memory and file descriptors; -1 where the system does not tell."""

    cpu_s: float
    resident_bytes: int
    open_fds: int
    max_fds: int


def read_process() -> ProcessReading:
    """As it is now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ProcessReading(usage.ru_utime + usage.ru_stime, _resident(), _open_fds(), limit)


def _resident() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return -1


def _open_fds() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1
