"""BlobStorage: immutable blobs in groups of disks that lose nothing they have acknowledged (seed 001)."""

from penstock.blob.blob_id import BLOB_SIZE_MAX, COOKIE_MAX, GENERATION_MAX, MAX_BARRIER, SIZE_FIELD_MAX, STEP_MAX, BlobId
from penstock.blob.channel_history import ChannelHistory, TabletInfo
from penstock.blob.config import DYNAMIC_GROUPS_FROM, GroupConfig, static_group
from penstock.blob.configuration import Configuration, Seat, newest_configuration
from penstock.blob.confirmation import Confirmations, UnconfirmedError
from penstock.blob.controller import Controller
from penstock.blob.disk import Buffer, Disk, DiskSpace, FilePiece
from penstock.blob.get_operation import GetResult
from penstock.blob.link import DiskLink
from penstock.blob.local_disk import LocalDisk
from penstock.blob.local_group import LocalGroup
from penstock.blob.membership import Membership
from penstock.blob.options import GroupOptions, VDiskOptions
from penstock.blob.placement import PlacedDisk, choose_disks, choose_spare
from penstock.blob.probe import DEGRADED, HEALTHY, LOST, READ_ONLY, DiskProbe, GroupProbe, group_state
from penstock.blob.proxy import DiscoverResult, GroupProxy, RangeResult
from penstock.blob.quorum import fits_fail_model, group_quorum
from penstock.blob.remote_link import link_to_vdisk
from penstock.blob.status import Reply, Status, Submitted
from penstock.blob.storage import BlobStorage, TabletStorage, open_local_vdisk
from penstock.blob.topology import Erasure, VDiskId
from penstock.blob.vdisk import VDisk
from penstock.blob.vdisk_host import VDiskHost
from penstock.blob.vdisk_service import VDiskService
from penstock.blob.vector import Content, Vector, contiguous

__all__ = [
    "BLOB_SIZE_MAX",
    "COOKIE_MAX",
    "DEGRADED",
    "DYNAMIC_GROUPS_FROM",
    "GENERATION_MAX",
    "HEALTHY",
    "LOST",
    "MAX_BARRIER",
    "READ_ONLY",
    "SIZE_FIELD_MAX",
    "STEP_MAX",
    "BlobId",
    "BlobStorage",
    "Buffer",
    "ChannelHistory",
    "Configuration",
    "Confirmations",
    "Content",
    "Controller",
    "DiscoverResult",
    "Disk",
    "DiskLink",
    "DiskProbe",
    "DiskSpace",
    "Erasure",
    "FilePiece",
    "GetResult",
    "GroupConfig",
    "GroupOptions",
    "GroupProbe",
    "GroupProxy",
    "LocalDisk",
    "LocalGroup",
    "Membership",
    "PlacedDisk",
    "RangeResult",
    "Reply",
    "Seat",
    "Status",
    "Submitted",
    "TabletInfo",
    "TabletStorage",
    "UnconfirmedError",
    "VDisk",
    "VDiskHost",
    "VDiskId",
    "VDiskOptions",
    "VDiskService",
    "Vector",
    "choose_disks",
    "choose_spare",
    "contiguous",
    "fits_fail_model",
    "group_quorum",
    "group_state",
    "link_to_vdisk",
    "newest_configuration",
    "open_local_vdisk",
    "static_group",
]
