"""Chooses the storage groups of new tablets, by free space and by how many partitions a group has already. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class GroupRoom(NamedTuple):
    """A storage group that can get new tablets. `free_bytes` are those of its fullest disk; None if they are not known yet."""

    group: int
    partitions: int
    free_bytes: int | None = None
    is_writable: bool = True


def choose_groups(groups: Sequence[GroupRoom], count: int) -> list[int]:
    """Returns the groups of so many new tablets: each goes where the most free space is left per partition. Groups that accept no
    writes are used only if no other is there. While the space of one is not known, partitions alone count."""
    usable = [group for group in groups if group.is_writable] or list(groups)
    is_space_known = all(group.free_bytes is not None for group in usable)
    space = {group.group: (group.free_bytes or 0) + 1 if is_space_known else 1 for group in usable}
    partitions = {group.group: group.partitions for group in usable}
    chosen: list[int] = []
    for _ in range(count):
        best = max(space, key=lambda group: (space[group] / (partitions[group] + 1), -group))
        partitions[best] += 1
        chosen.append(best)
    return chosen
