"""The mark file of every disk: its cluster, and its number in the group.

    DISK/penstock-disk.json         {"format": 1, "cluster_id": …, "erasure": "none", "disk": 0}
    DISK/00000000-0-0-0/            the VDisk (see penstock.blob)

It detects a disk of another cluster, or in the wrong position, before anything is written, and distinguishes an empty disk (new,
or not mounted) from a known one. A hanging disk is waited for no longer than the time limit.
"""

from __future__ import annotations

import enum
import errno
import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from penstock.blob import Erasure
from penstock.server.errors import DirectoryMismatchError, DirectoryUnusableError
from penstock.server.json_file import read_fields, write_fields

log = logging.getLogger(__name__)

T = TypeVar("T")

MARK_NAME: Final = "penstock-disk.json"

# How many disks may come back empty before it is certain that data would be missing.
_EMPTY_MAX = {Erasure.NONE: 0, Erasure.BLOCK_4_2: 2, Erasure.MIRROR_3_DC: 4, Erasure.MIRROR_3: 1}
_VDISK_NAME = re.compile(r"[0-9a-f]{8}-[0-9]+-[0-9]+-[0-9]+")


class NodeLayout(NamedTuple):
    """The identity and disks of a node, as its data directory was created. `disks` are absolute paths. `formed` is set once
    its storage group exists, so that it is not created again; `started` once a broker has run, so that its topics must be there
    at the next start."""

    cluster_id: str
    node_id: int
    erasure: Erasure
    disks: tuple[Path, ...]
    formed: bool = True
    started: bool = False


class _State(enum.Enum):
    OURS = enum.auto()
    UNMARKED = enum.auto()  # it holds a VDisk, but no mark says whose
    EMPTY = enum.auto()
    LOST = enum.auto()


def check_disks(layout: NodeLayout, stored: NodeLayout | None, timeout_s: float) -> NodeLayout:
    """Check every disk before any is written to, then mark new ones. Returns the layout, with the cluster id of the disks.
    `stored` is that of the data directory, if there is one. A disk that cannot be used now is logged and left out."""
    marks = all_within(timeout_s, [partial(_read_mark, disk, must=stored is None) for disk in layout.disks])
    for order, mark in enumerate(marks):
        if isinstance(mark, OSError):
            if stored is None:
                raise unusable(layout.disks[order], mark) from mark
            log.error("disk %s cannot be read: %s", layout.disks[order], mark.strerror)
            marks[order] = _State.LOST
        elif isinstance(mark, Exception):
            raise mark
    known = [mark for mark in marks if not isinstance(mark, Exception)]
    if stored is None:
        # The disks may know what the data directory does not.
        cluster_id = next((mark["cluster_id"] for mark in known if isinstance(mark, dict)), None)
        layout = layout._replace(cluster_id=cluster_id or layout.cluster_id)
    is_new = stored is None and not any(isinstance(mark, dict) for mark in known)
    states = [_state(layout, stored, order, mark, is_new=is_new) for order, mark in enumerate(known)]
    if not is_new:
        _check_enough(layout, [order for order, state in enumerate(states) if state in (_State.EMPTY, _State.LOST)])
    new = [order for order, state in enumerate(states) if state in (_State.EMPTY, _State.UNMARKED)]
    for order, error in zip(new, all_within(timeout_s, [partial(_mark, layout, order) for order in new]), strict=True):
        if isinstance(error, OSError):
            if is_new:
                raise unusable(layout.disks[order], error) from error
            log.error("disk %s cannot be used: %s", layout.disks[order], error.strerror)
        elif isinstance(error, Exception):
            raise error
    return layout


def check_mark(layout: NodeLayout, order: int, timeout_s: float) -> None:
    """Raise OSError unless the disk carries the mark of this node's disk with this number."""
    disk = layout.disks[order]
    (mark,) = all_within(timeout_s, [partial(_read_mark, disk, must=True)])
    if isinstance(mark, DirectoryUnusableError) and isinstance(mark.__cause__, OSError):
        raise mark.__cause__
    if isinstance(mark, Exception):
        raise mark
    if not isinstance(mark, dict):
        raise FileNotFoundError(
            errno.ENOENT, f"{disk} is empty or not mounted; mount it, or restart the node to have an empty disk refilled"
        )
    if _identity(mark) != (layout.cluster_id, layout.erasure.value, order):
        raise OSError(errno.EINVAL, f"{disk} is another disk than disk {order} of this node; mount the right one there")


def unusable(path: Path, error: OSError) -> DirectoryUnusableError:
    """The error for a directory that cannot be created, read or written."""
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


def _state(layout: NodeLayout, stored: NodeLayout | None, order: int, mark: dict[str, Any] | _State, *, is_new: bool) -> _State:
    disk = layout.disks[order]
    if isinstance(mark, dict):
        if _identity(mark) != (layout.cluster_id, layout.erasure.value, order):
            raise DirectoryMismatchError(
                f"{disk} is disk {mark['disk']} of a {mark['erasure']} group of cluster {mark['cluster_id']}, not disk {order} "
                f"of a {layout.erasure.value} group of cluster {layout.cluster_id}; name the disks in their order"
            )
        return _State.OURS
    if is_new and mark is _State.UNMARKED:
        raise DirectoryMismatchError(f"disk {disk} holds the data of another node; name an empty directory")
    # An empty disk may replace a lost one only at the same position: otherwise a mistake could lose all of them.
    if stored is not None and disk != stored.disks[order]:
        raise DirectoryMismatchError(
            f"disk {order} was {stored.disks[order]}, and {disk} is not that disk moved; name the disks as before, "
            "or leave them out"
        )
    return mark


def _check_enough(layout: NodeLayout, missing: list[int]) -> None:
    if len(missing) > _EMPTY_MAX[layout.erasure]:
        names = ", ".join(str(layout.disks[order]) for order in missing)
        raise DirectoryMismatchError(
            f"the data is not there: {names} {'are' if len(missing) > 1 else 'is'} empty or cannot be read; mount or restore "
            "what was there, or name another --data-dir to start with an empty one"
        )


def _identity(mark: dict[str, Any]) -> tuple[str, str, int]:
    return mark["cluster_id"], mark["erasure"], mark["disk"]


def _mark(layout: NodeLayout, order: int) -> None:
    """Mark a disk as ours."""
    disk = layout.disks[order]
    disk.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_fields(disk / MARK_NAME, {"cluster_id": layout.cluster_id, "erasure": layout.erasure.value, "disk": order})


def all_within(timeout_s: float, calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Make all calls at once, each in a daemon thread, and give what each returned or raised; TimeoutError for one that hangs."""
    results: list[T | Exception] = [TimeoutError(errno.ETIMEDOUT, f"it has not answered for {timeout_s:g} s")] * len(calls)

    def make(at: int, call: Callable[[], T]) -> None:
        try:
            results[at] = call()
        except Exception as error:  # noqa: BLE001 - handed to the caller
            results[at] = error

    threads = [threading.Thread(target=make, args=(at, call), daemon=True) for at, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    return list(results)
