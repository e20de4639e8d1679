"""The Python processes of a Spark driver, for tests that kill them."""

from __future__ import annotations

import subprocess


def workers_of(driver: int, *, with_daemon: bool = True) -> list[int]:
    """The Python processes that the tasks of a driver run in, wherever below it they are, and the daemon they are forked from."""
    # As wide as need be: what tells workers from others stands at the end of their lines.
    listed = subprocess.run(["ps", "-eww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, _ in lines}

    def is_below(pid: int) -> bool:
        while pid > 1 and pid != driver:
            pid = parents.get(pid, 0)
        return pid == driver

    found = {int(pid) for pid, _, command in lines if command.endswith("pyspark.worker") and is_below(int(pid))}
    return sorted(pid for pid in found if with_daemon or parents[pid] in found)
