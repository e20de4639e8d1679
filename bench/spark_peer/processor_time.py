"""CPU time of this process and its children: the cost of a way of reading, however busy the machine is."""

from __future__ import annotations

import os
from pathlib import Path


def processor_time() -> float:
    """Seconds so far, of descendants that have ended as well."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended since
            fields = text.rsplit(")", 1)[1].split()
            stats[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    return sum(ticks for pid, (_, ticks) in stats.items() if _descends(pid, stats)) / os.sysconf("SC_CLK_TCK")


def _descends(pid: int, stats: dict[int, tuple[int, int]]) -> bool:
    while pid in stats:
        if pid == os.getpid():
            return True
        pid = stats[pid][0]
    return False
