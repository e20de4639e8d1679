"""The groups of a node as configuration describes them. A key that is not known is an error, with the key in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.blob.topology import GROUP_MAX, Erasure, VDiskId
from penstock.core.errors import ConfigError

DYNAMIC_GROUPS_FROM = 0x82000000
_KEYS = {"id", "erasure", "disks", "generation"}


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One group: `disks` are directories in the order of its VDisks (realm, then domain)."""

    id: int
    erasure: Erasure
    disks: tuple[Path, ...]
    generation: int = 1

    def vdisk_directory(self, order: int) -> Path:
        """Where a VDisk of the group keeps its files: a disk may have VDisks of several groups."""
        vdisk = VDiskId.of_order(self.erasure, self.id, self.generation, order)
        return self.disks[order] / f"{vdisk.group:08x}-{vdisk.realm}-{vdisk.domain}-{vdisk.vdisk}"


def static_group(mapping: Mapping[str, Any], base: Path = Path()) -> GroupConfig:
    """A static group from its table in the configuration; relative directories are below `base`."""
    unknown = sorted(set(mapping) - _KEYS)
    if unknown:
        raise ConfigError(f"unknown key {unknown[0]!r} in a storage group; known are {', '.join(sorted(_KEYS))}")
    group_id = _number(mapping, "id", 0, DYNAMIC_GROUPS_FROM - 1, default=0)
    generation = _number(mapping, "generation", 1, GROUP_MAX, default=1)
    erasure = _erasure(mapping.get("erasure", "none"))
    disks = mapping.get("disks")
    if not isinstance(disks, list) or not all(isinstance(disk, str) for disk in disks):
        raise ConfigError(f"storage group {group_id}: `disks` must be a list of directories")
    wanted = erasure.shape.disks
    if len(disks) != wanted:
        raise ConfigError(f"storage group {group_id}: {erasure.value} needs {wanted} disks, {len(disks)} are given")
    paths = tuple(base / disk for disk in disks)
    if len(set(paths)) != len(paths):
        raise ConfigError(f"storage group {group_id}: a disk is named twice; one failure would take two of its VDisks")
    return GroupConfig(group_id, erasure, paths, generation)


def _number(mapping: Mapping[str, Any], key: str, low: int, high: int, *, default: int) -> int:
    value = mapping.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"storage group: `{key}` is {value!r}; it must be a whole number within {low}..{high}")
    return value


def _erasure(name: object) -> Erasure:
    for erasure in Erasure:
        if erasure.value == name:
            return erasure
    raise ConfigError(f"unknown erasure {name!r}; known are {', '.join(erasure.value for erasure in Erasure)}")
