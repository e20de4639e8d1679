"""`penstock up` on disks that hang or fail as a file says: the calls of the operating system are replaced before the node starts.

The file named by FAULTS has a line for each disk with a fault: `hang /path/to/disk` or `eio /path/to/disk`. It may change while
the node runs; a call that hangs returns when its line is gone.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.cli.main import main

FAULTS = Path(os.environ["FAULTS"])
CALLS = ("fdatasync", "fsync", "pwritev", "pwrite", "pread", "posix_fallocate", "statvfs")


def fault_of(fd: int) -> str:
    """What is wrong with the disk that a file is on; empty if nothing is."""
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
        lines = FAULTS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    for line in lines:
        kind, _, disk = line.partition(" ")
        if path.startswith(disk + "/"):
            return kind
    return ""


def faulty(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call as a bad disk answers it."""

    def answer(fd: int, *arguments: Any) -> Any:
        while (fault := fault_of(fd)) == "hang":
            time.sleep(0.05)
        if fault == "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call(fd, *arguments)

    return answer


if __name__ == "__main__":
    for name in CALLS:
        setattr(os, name, faulty(getattr(os, name)))
    sys.exit(main())
