"""Choosing disks for a group so that no two of its VDisks can fail together: each in a fail domain of its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.blob.topology import Erasure, VDiskId
from penstock.core.errors import ConfigError


class PlacedDisk(NamedTuple):
    """A disk that groups can be put on: where it stands, how many VDisks it has, and whether one had to leave it."""

    id: int
    realm: str
    domain: str
    load: int
    suspect: bool = False


def choose_disks(erasure: Erasure, disks: Sequence[PlacedDisk]) -> tuple[int, ...]:
    """Ids of the disks for a new group in order of its VDisks, the least loaded first. ConfigError says what is missing."""
    shape = erasure.shape
    disks = [disk for disk in disks if not disk.suspect]
    if shape.realms == 1:
        return tuple(_distinct_domains(erasure, disks, shape.domains))
    by_realm: dict[str, list[PlacedDisk]] = {}
    for disk in disks:
        by_realm.setdefault(disk.realm, []).append(disk)
    fit = {realm: own for realm, own in by_realm.items() if len({disk.domain for disk in own}) >= shape.domains}
    if len(fit) < shape.realms:
        raise ConfigError(
            f"{erasure.value} needs {shape.realms} realms with {shape.domains} fail domains each; only {len(fit)} have as many"
        )
    chosen = sorted(fit, key=lambda realm: (sum(disk.load for disk in fit[realm]), realm))[: shape.realms]
    return tuple(disk for realm in sorted(chosen) for disk in _distinct_domains(erasure, fit[realm], shape.domains))


def choose_spare(erasure: Erasure, disks: Sequence[PlacedDisk], members: Sequence[int], order: int) -> int:
    """The disk to which VDisk `order` can move: in a domain no other member uses, in the same realm where that counts, and none
    that a VDisk had to leave."""
    by_id = {disk.id: disk for disk in disks}
    others = [by_id[member] for at, member in enumerate(members) if at != order and member in by_id]
    taken = {(disk.realm, disk.domain) for disk in others}
    free = [disk for disk in disks if disk.id not in members and not disk.suspect]
    candidates = [disk for disk in free if (disk.realm, disk.domain) not in taken]
    if erasure.shape.realms > 1:
        row = VDiskId.of_order(erasure, 0, 1, order).realm
        beside = [by_id[member].realm for at, member in enumerate(members) if at // 3 == row and member in by_id]
        candidates = [disk for disk in candidates if disk.realm in beside]
    if not candidates:
        raise ConfigError(f"no disk is free in a fail domain that the other VDisks of this {erasure.value} group do not use")
    return min(candidates, key=lambda disk: (disk.load, disk.id)).id


def _distinct_domains(erasure: Erasure, disks: Sequence[PlacedDisk], count: int) -> list[int]:
    best: dict[tuple[str, str], PlacedDisk] = {}
    for disk in sorted(disks, key=lambda disk: (disk.load, disk.id)):
        best.setdefault((disk.realm, disk.domain), disk)
    if len(best) < count:
        raise ConfigError(f"{erasure.value} needs disks in {count} fail domains; there are {len(best)}")
    chosen = sorted(best.values(), key=lambda disk: (disk.load, disk.id))[:count]
    return [disk.id for disk in chosen]
