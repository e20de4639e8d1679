"""The mark that every disk of a node carries: whose it is, and which of the group's disks.

    DISK/penstock-disk.json         {"format": 1, "cluster_id": …, "erasure": "none", "disk": 0}
    DISK/00000000-0-0-0/            the VDisk (see penstock.blob)

By it a disk of another cluster, or in another's place, is found out before a byte is written to any, and a disk that is empty
(new, or not mounted) is told from one that was there before.
"""

from __future__ import annotations

import enum
import logging
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.blob import Erasure
from penstock.server.errors import DirectoryMismatchError, DirectoryUnusableError
from penstock.server.json_file import read_fields, write_fields

log = logging.getLogger(__name__)

MARK_NAME: Final = "penstock-disk.json"

# How many disks may come back empty before it is certain that data would be missing.
_EMPTY_MAX = {Erasure.NONE: 0, Erasure.BLOCK_4_2: 2, Erasure.MIRROR_3_DC: 4}
_VDISK_NAME = re.compile(r"[0-9a-f]{8}-[0-9]+-[0-9]+-[0-9]+")


class Made(NamedTuple):
    """What a node was made as. `disks` are absolute."""

    cluster_id: str
    node_id: int
    erasure: Erasure
    disks: tuple[Path, ...]


class _State(enum.Enum):
    OURS = enum.auto()
    UNMARKED = enum.auto()  # it holds a VDisk, but no mark says whose
    EMPTY = enum.auto()
    LOST = enum.auto()


def check_disks(made: Made, stored: Made | None) -> tuple[Made, frozenset[int]]:
    """Look at every disk before any is written to, then mark those that are new. The node, with the cluster id its disks know;
    and which disks cannot be used now. `stored` is what the data directory says, if it says anything."""
    marks = [_read_mark(disk, must=stored is None) for disk in made.disks]
    if stored is None:
        # The disks may know what the data directory does not.
        known = next((mark["cluster_id"] for mark in marks if isinstance(mark, dict)), None)
        made = made._replace(cluster_id=known or made.cluster_id)
    is_new = stored is None and not any(isinstance(mark, dict) for mark in marks)
    states = [_state(made, stored, order, mark, is_new=is_new) for order, mark in enumerate(marks)]
    if not is_new:
        _check_enough(made, [order for order, state in enumerate(states) if state in (_State.EMPTY, _State.LOST)])
    lost = {order for order, state in enumerate(states) if state is _State.LOST}
    for order, state in enumerate(states):
        if state in (_State.EMPTY, _State.UNMARKED) and not _mark(made, order, must=is_new):
            lost.add(order)
    return made, frozenset(lost)


def unusable(path: Path, error: OSError) -> DirectoryUnusableError:
    """The same for every directory that cannot be made, read or written."""
    return DirectoryUnusableError(
        f"cannot use {path}: {error.strerror}; name a directory that this user may write to, or change its owner"
    )


def _read_mark(disk: Path, *, must: bool) -> dict[str, Any] | _State:
    try:
        mark = read_fields(disk / MARK_NAME, {"cluster_id": str, "erasure": str, "disk": int})
        if mark is not None:
            return mark
        names = set(os.listdir(disk)) - {"lost+found", MARK_NAME + ".new"}
    except FileNotFoundError:
        return _State.EMPTY
    except OSError as error:
        if must:
            raise unusable(disk, error) from error
        log.error("disk %s cannot be read: %s", disk, error.strerror)
        return _State.LOST
    except DirectoryUnusableError as error:
        if must:
            raise
        log.error("%s", error)
        return _State.LOST
    if strangers := sorted(name for name in names if not _VDISK_NAME.fullmatch(name)):
        raise DirectoryMismatchError(f"disk {disk} holds other files ({', '.join(strangers[:3])}); name an empty directory")
    return _State.UNMARKED if names else _State.EMPTY


def _state(made: Made, stored: Made | None, order: int, mark: dict[str, Any] | _State, *, is_new: bool) -> _State:
    disk = made.disks[order]
    if isinstance(mark, dict):
        if (mark["cluster_id"], mark["erasure"], mark["disk"]) != (made.cluster_id, made.erasure.value, order):
            raise DirectoryMismatchError(
                f"{disk} is disk {mark['disk']} of a {mark['erasure']} group of cluster {mark['cluster_id']}, not disk {order} "
                f"of a {made.erasure.value} group of cluster {made.cluster_id}; name the disks in their order"
            )
        return _State.OURS
    if is_new and mark is _State.UNMARKED:
        raise DirectoryMismatchError(f"disk {disk} holds the data of another node; name an empty directory")
    # An empty disk may take the place of one that is gone, but only where that one was: else a slip would lose them all.
    if stored is not None and disk != stored.disks[order]:
        raise DirectoryMismatchError(
            f"disk {order} was {stored.disks[order]}, and {disk} is not that disk moved; name the disks as before, "
            "or leave them out"
        )
    return mark


def _check_enough(made: Made, missing: list[int]) -> None:
    if len(missing) > _EMPTY_MAX[made.erasure]:
        names = ", ".join(str(made.disks[order]) for order in missing)
        raise DirectoryMismatchError(
            f"the data is not there: {names} {'are' if len(missing) > 1 else 'is'} empty or cannot be read; mount or restore "
            "what was there, or name another --data-dir to start anew"
        )


def _mark(made: Made, order: int, *, must: bool) -> bool:
    """Mark a disk as ours; whether that worked, where it need not."""
    disk = made.disks[order]
    try:
        disk.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_fields(disk / MARK_NAME, {"cluster_id": made.cluster_id, "erasure": made.erasure.value, "disk": order})
    except OSError as error:
        if must:
            raise unusable(disk, error) from error
        log.error("disk %s cannot be used: %s", disk, error.strerror)
        return False
    return True
