"""The processor time of another process."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """What all threads that a process has now have used, to the nanosecond; what the system counts for a whole process comes in
    hundredths of a second, which is as much as a round takes."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def tree_cpu_s(pid: int) -> float:
    """What a process and its children have used, threads and children that have ended included, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    total = sum(map(int, fields[11:15])) / _TICKS_PER_S
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread or child that ends meanwhile is in the sums of its process or parent.
        with suppress(FileNotFoundError, ProcessLookupError):
            total += sum(tree_cpu_s(int(child)) for child in (task / "children").read_text(encoding="ascii").split())
    return total
