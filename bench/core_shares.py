"""Shares of a core for other processes, by the scheduler's bandwidth limit: how a program scales is seen only while the
processes it is spread over, and their clients, do not compete for the cores of a small machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 5_000  # short, so that what waits for its turn waits for milliseconds


@contextmanager
def core_shares(name: str, pids: Sequence[int], share: float) -> Iterator[None]:
    """Gives each process no more than this share of one core. Raises OSError where the system has no such limit or this user
    may not set it."""
    groups: list[Path] = []
    try:
        for number, pid in enumerate(pids):
            group = _parent() / f"penstock-{name}-{number}"
            group.mkdir()
            groups.append(group)
            _limit(group, share)
            _move(pid, group)
        yield
    finally:
        for group in groups:
            for member in (group / "cgroup.procs").read_text(encoding="ascii").split():
                _move(int(member), _parent())
            group.rmdir()


def descendants(pid: int) -> list[int]:
    """The process itself and all that it has started, directly or not."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text(encoding="ascii").split()
    ]
    return [pid, *(descendant for child in children for descendant in descendants(child))]


def _parent() -> Path:
    """The group of all processes, in the hierarchy of version 1 that has processor time, or in that of version 2."""
    return GROUPS / "cpu" if (GROUPS / "cpu").is_dir() else GROUPS


def _limit(group: Path, share: float) -> None:
    quota_us = int(PERIOD_US * share)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}", encoding="ascii")
        return
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US), encoding="ascii")
    (group / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")


def _move(pid: int, group: Path) -> None:
    (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
