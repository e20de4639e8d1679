"""Damage on the disks of a node: stored parts that cannot be read any more, and the topics that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from penstock.blob import HEALTHY, BlobId, BlobStorage, Erasure, VDisk, group_state
from penstock.broker import SYSTEM_TABLET_CONTENTS, Broker
from penstock.server.metrics.alerts import DamagedDisk

PARTS_NAMED: Final = 1_000  # of a disk: more are counted, and what they belong to is not looked up
PLACES_NAMED: Final = 5


@dataclass(slots=True)
class DiskDamage:
    """The damaged disks of a node, and the blobs of each tablet that are lost with them: those of groups without copies."""

    disks: list[DamagedDisk] = field(default_factory=list)
    lost_blobs: dict[int, set[BlobId]] = field(default_factory=dict)


async def disk_damage(storage: BlobStorage, broker: Broker) -> DiskDamage:
    """Looks at the indexes of all VDisks of the node; reads nothing from disks. A group with copies restores what is damaged
    within seconds: of such a group, only what could not be restored counts."""
    damage = DiskDamage()
    for config in storage.groups():
        host = await storage.life(config.id)
        has_copies = config.erasure is not Erasure.NONE
        is_whole = group_state(host) == HEALTHY  # otherwise another alert says what is missing
        for order, vdisk in host.vdisks.items():
            path = str(config.disks[order])
            if has_copies:
                if is_whole and (left := host.probe.to_heal.get(order, 0)):
                    damage.disks.append(DamagedDisk(str(vdisk.id), path, left, has_copies=True))
            elif vdisk.index.damaged:
                blobs = _damaged_blobs(vdisk)
                for tablet_id, of_tablet in blobs.items():
                    damage.lost_blobs.setdefault(tablet_id, set()).update(of_tablet)
                topics = {topic.name for number in blobs if (topic := broker.catalog.topic_of_tablet(number)) is not None}
                places = tuple(islice(_places(sorted(blobs), broker), PLACES_NAMED))
                damage.disks.append(DamagedDisk(str(vdisk.id), path, len(vdisk.index.damaged), places, tuple(sorted(topics))))
    return damage


def _damaged_blobs(vdisk: VDisk) -> dict[int, set[BlobId]]:
    blobs: dict[int, set[BlobId]] = {}
    for part in islice(vdisk.index.damaged, PARTS_NAMED):
        blob = BlobId.unpack(part)._replace(part=0)
        blobs.setdefault(blob.tablet, set()).add(blob)
    return blobs


def _places(tablets: Sequence[int], broker: Broker) -> Iterator[str]:
    """What the tablets hold, in words."""
    for tablet_id in tablets:
        topic = broker.catalog.topic_of_tablet(tablet_id)
        if topic is not None:
            numbers = [number for number, of_partition in enumerate(topic.tablets) if of_partition == tablet_id]
            shown = f"partition {numbers[0]}" if len(numbers) == 1 else f"one of partitions {', '.join(map(str, numbers))}"
            yield f"{shown} of topic {topic.name!r}"
        elif tablet_id in SYSTEM_TABLET_CONTENTS:
            yield f"system tablet {tablet_id} ({SYSTEM_TABLET_CONTENTS[tablet_id]})"
        else:
            yield f"tablet {tablet_id}, which no topic has any more"
