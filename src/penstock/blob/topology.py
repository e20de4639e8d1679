"""Where a blob lives in its group: the shapes of groups, the names of VDisks, and the subgroup of a blob.

A group is a box of realms × domains × VDisks per domain; a VDisk's *order number* counts its cells realm first:

    order = (realm * domains + domain) * vdisks + vdisk

Every blob sees the disks of its group in an order of its own, the *subgroup*, chosen by a hash of the blob's prefix. A place in
it is a *subgroup index*. Main places are where parts belong; handoffs stand in for main places that are out.

    block-4-2 (1×8×1)      index i is domain (hash + i) mod 8

        index    0   1   2   3   4   5   6   7
        holds    1   2   3   4   5   6   any any        6 and 7 are handoffs

    mirror-3-dc (3×3×1)    index = row * 3 + col, realm (hash mod 3 + col) mod 3, domain (hash div 3 mod 3 + row) mod 3

        row 0    1   2   3                               main, one in each realm
        row 1    1   2   3                               handoffs, in the realm of the place they stand in for
        row 2    1   2   3

    mirror-3 (1×3×1)       index i is domain (hash + i) mod 3

        index    0   1   2
        holds    1   2   3                               no handoffs: a put is done with two of the three

    none (1×1×1)           the only disk holds part 1
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from penstock.core.checksum import crc32c
from penstock.core.errors import InvalidRequestError

GROUP_MAX = (1 << 32) - 1
GROUP_GENERATION_MAX = (1 << 32) - 1
COORDINATE_MAX = (1 << 8) - 1

_TEXT = re.compile(r"\[([0-9a-fA-F]+):([0-9]+):([0-9]+):([0-9]+):([0-9]+)\]")


class Shape(NamedTuple):
    """The box of VDisks a group is."""

    realms: int
    domains: int
    vdisks: int

    @property
    def disks(self) -> int:
        """How many VDisks the group has."""
        return self.realms * self.domains * self.vdisks


class Erasure(enum.Enum):
    """How a group codes its blobs; the value is the name users write."""

    NONE = "none"
    MIRROR_3 = "mirror-3"
    BLOCK_4_2 = "block-4-2"
    MIRROR_3_DC = "mirror-3-dc"

    @property
    def shape(self) -> Shape:
        """The box of VDisks this code needs."""
        return _SHAPES[self]

    @property
    def is_mirror(self) -> bool:
        """Whether each part is the whole blob, and there are several."""
        return self in (Erasure.MIRROR_3, Erasure.MIRROR_3_DC)


_SHAPES = {
    Erasure.NONE: Shape(1, 1, 1),
    Erasure.BLOCK_4_2: Shape(1, 8, 1),
    Erasure.MIRROR_3_DC: Shape(3, 3, 1),
    Erasure.MIRROR_3: Shape(1, 3, 1),
}


class VDiskId(NamedTuple):
    """One VDisk of one generation of a group."""

    group: int
    generation: int
    realm: int
    domain: int
    vdisk: int

    @classmethod
    def parse(cls, text: str) -> VDiskId:
        """The id written as `[group:generation:realm:domain:vdisk]`, the group in hex and the rest in decimal."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidRequestError(
                f"{text!r} is not a VDisk id; write [group:generation:realm:domain:vdisk] with the group in hex, "
                "such as [82000000:1:0:0:0]"
            )
        group, *rest = match.groups()
        parsed = cls(int(group, 16), *map(int, rest))
        for value, limit, name in zip(parsed, _LIMITS, cls._fields, strict=True):
            if value > limit:
                raise InvalidRequestError(f"VDisk id field {name} is {value} in {text!r}; it must be within 0..{limit}")
        return parsed

    @classmethod
    def of_order(cls, erasure: Erasure, group: int, generation: int, order: int) -> VDiskId:
        """The VDisk with an order number in a group."""
        _, domains, vdisks = shape = erasure.shape
        if not 0 <= order < shape.disks:
            raise InvalidRequestError(f"a {erasure.value} group has no VDisk {order}; its order numbers are 0..{shape.disks - 1}")
        domain_order, vdisk = divmod(order, vdisks)
        return cls(group, generation, *divmod(domain_order, domains), vdisk)

    def order(self, erasure: Erasure) -> int:
        """The order number of this VDisk in its group."""
        realms, domains, vdisks = erasure.shape
        if not (0 <= self.realm < realms and 0 <= self.domain < domains and 0 <= self.vdisk < vdisks):
            raise InvalidRequestError(f"VDisk {self} is outside a {erasure.value} group of {realms}×{domains}×{vdisks}")
        return (self.realm * domains + self.domain) * vdisks + self.vdisk

    def __str__(self) -> str:
        return f"[{self.group:08x}:{self.generation}:{self.realm}:{self.domain}:{self.vdisk}]"


_LIMITS = (GROUP_MAX, GROUP_GENERATION_MAX, COORDINATE_MAX, COORDINATE_MAX, COORDINATE_MAX)


def blob_hash(prefix: bytes) -> int:
    """What places a blob: a hash of its packed prefix, so neither its size nor its parts have a say."""
    return crc32c(prefix)


def subgroup(erasure: Erasure, blob_hash: int) -> tuple[int, ...]:
    """Order numbers of the blob's disks, by subgroup index."""
    if erasure is Erasure.BLOCK_4_2:
        return _BLOCK_SUBGROUPS[blob_hash % 8]
    if erasure is Erasure.MIRROR_3_DC:
        return _MIRROR_DC_SUBGROUPS[blob_hash % 9]
    if erasure is Erasure.MIRROR_3:
        return _MIRROR_SUBGROUPS[blob_hash % 3]
    return _NONE_SUBGROUP


def main_part(erasure: Erasure, index: int) -> int:
    """The part that belongs at a subgroup index; 0 if the index is a handoff."""
    return _MAIN_PARTS[erasure][index]


def allowed_parts(erasure: Erasure, index: int) -> tuple[int, ...]:
    """The parts that a disk at a subgroup index may hold."""
    return _ALLOWED_PARTS[erasure][index]


def _mirror_dc_subgroup(blob_hash: int) -> tuple[int, ...]:
    first_domain, first_realm = divmod(blob_hash, 3)
    return tuple((first_realm + col) % 3 * 3 + (first_domain + row) % 3 for row in range(3) for col in range(3))


# A subgroup depends on the hash modulo the number of disks alone, so all there can be are built once.
_NONE_SUBGROUP = (0,)
_BLOCK_SUBGROUPS = tuple(tuple((first + index) % 8 for index in range(8)) for first in range(8))
_MIRROR_DC_SUBGROUPS = tuple(_mirror_dc_subgroup(remainder) for remainder in range(9))
_MIRROR_SUBGROUPS = tuple(tuple((first + index) % 3 for index in range(3)) for first in range(3))

_MAIN_PARTS = {
    Erasure.NONE: (1,),
    Erasure.BLOCK_4_2: (1, 2, 3, 4, 5, 6, 0, 0),
    Erasure.MIRROR_3_DC: (1, 2, 3, 0, 0, 0, 0, 0, 0),
    Erasure.MIRROR_3: (1, 2, 3),
}
_ALLOWED_PARTS = {
    Erasure.NONE: ((1,),),
    Erasure.BLOCK_4_2: ((1,), (2,), (3,), (4,), (5,), (6,), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6)),
    Erasure.MIRROR_3_DC: ((1,), (2,), (3,)) * 3,
    Erasure.MIRROR_3: ((1,), (2,), (3,)),
}
