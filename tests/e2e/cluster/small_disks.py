"""Small file systems as the disks of nodes, each on a block device of its own: filled, and slowed down by the kernel."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

SIZE: Final = 1 << 30  # of which little is used: 256 MiB are kept free of messages
BALLAST: Final = "ballast"
LIMIT: Final = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device")
WRITES_A_SECOND: Final = 8  # a sync of a few writes, the journal's among them, takes 0.2 s in place of 0.002


class SmallDisk:
    """A file system in a file, mounted on a directory."""

    def __init__(self, image: Path, directory: Path) -> None:
        self.directory = directory
        self._image = image
        self._device = ""

    def mount(self) -> None:
        """Make it. CalledProcessError if this system cannot."""
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        self.directory.mkdir(exist_ok=True)
        self._device = _run("losetup", "--find", "--show", str(self._image)).strip()
        _run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", self._device)
        _run("mount", self._device, str(self.directory))
        (self.directory / "lost+found").rmdir()

    def unmount(self) -> None:
        """Remove what there is of it."""
        if self._device:
            if LIMIT.exists():
                self.speed_up()
            subprocess.run(["umount", "--lazy", str(self.directory)], check=False, capture_output=True, timeout=60)
            subprocess.run(["losetup", "--detach", self._device], check=False, capture_output=True, timeout=60)
        self._image.unlink(missing_ok=True)

    def fill(self) -> None:
        """Leave no byte free."""
        path = self.directory / BALLAST
        step = 64 << 20
        with path.open("wb") as file:
            at = 0
            while step >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), at, step)
                    at += step
                except OSError:
                    step //= 2

    def make_room(self) -> None:
        """Undo `fill`."""
        (self.directory / BALLAST).unlink(missing_ok=True)

    def empty(self) -> None:
        """Delete every file."""
        for child in self.directory.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
            else:
                child.unlink()

    def slow_down(self) -> None:
        """Let the kernel pass on a few writes a second."""
        self._limit(WRITES_A_SECOND)

    def speed_up(self) -> None:
        """Undo `slow_down`."""
        self._limit(0)

    def _limit(self, writes_a_second: int) -> None:
        numbers = os.stat(self._device).st_rdev
        LIMIT.write_text(f"{os.major(numbers)}:{os.minor(numbers)} {writes_a_second}\n", encoding="ascii")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@contextmanager
def small_disks(directories: list[Path]) -> Iterator[list[SmallDisk]]:
    """A disk on each directory; none where the system has no loop devices, or cannot slow one down (the cgroup blkio can)."""
    disks = [SmallDisk(directory.with_suffix(".image"), directory) for directory in directories]
    try:
        try:
            for disk in disks:
                disk.mount()
                disk.speed_up()
        except (OSError, subprocess.CalledProcessError) as error:
            log.warning("full and slow disks are not tried, for this system mounts none: %s", error)
            while disks:
                disks.pop().unmount()
            yield []
        else:
            yield disks
    finally:
        for disk in disks:
            disk.unmount()
