"""Removes what VDisks left on disks of this node when they moved elsewhere.

What is left is the only copy of nothing when every VDisk of the group, in the configuration by which it lives elsewhere, holds
all that it should. Until then it stays, though nothing reads it.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

from penstock.blob import Configuration, GroupConfig, Seat
from penstock.core.errors import ConfigError
from penstock.server.cluster.disks import NodeDisks

log = logging.getLogger(__name__)


class LeftVDisks:
    """The directories of VDisks that live elsewhere now."""

    def __init__(self, node_id: int, disks: NodeDisks) -> None:
        self._node_id = node_id
        self._disks = disks
        self._seen: dict[int, int] = {}  # the generation of each group in which none was left

    async def remove(self, configuration: Configuration, whole: dict[int, bool]) -> None:
        """Remove those of a group, if its VDisks are whole, as they say in this configuration."""
        group, generation = configuration.group, configuration.generation
        if self._seen.get(group) == generation or not all(whole.get(order) for order in range(len(configuration.seats))):
            return
        try:
            left = await asyncio.to_thread(self._find, configuration)
            for directory in left:
                await self._remove(directory)
        except (OSError, ConfigError) as error:
            log.warning("what VDisks of group %08x left here cannot be removed, trying again: %s", group, error)
        else:
            self._seen[group] = generation

    def _find(self, configuration: Configuration) -> list[Path]:
        count = len(configuration.seats)
        leftovers: list[Path] = []
        for name in self._disks.paths:
            path = self._disks.open_blocking(name)
            places = GroupConfig(configuration.group, configuration.erasure, (path,) * count, configuration.generation)
            for order, seat in enumerate(configuration.seats):
                if seat != Seat(self._node_id, name) and places.vdisk_directory(order).exists():
                    leftovers.append(places.vdisk_directory(order))
        return leftovers

    async def _remove(self, directory: Path) -> None:
        disk = await self._disks.open(directory)  # which locks it: a VDisk that is still open stays
        try:
            await asyncio.to_thread(shutil.rmtree, directory)
        finally:
            await disk.close()
        log.info("%s is removed: its VDisk lives on another disk, and the group is whole there", directory)
