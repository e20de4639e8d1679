"""BlobStorage: immutable blobs in groups of disks that lose nothing they have acknowledged (seed 001)."""

from penstock.blob.blob_id import BLOB_SIZE_MAX, COOKIE_MAX, GENERATION_MAX, MAX_BARRIER, SIZE_FIELD_MAX, STEP_MAX, BlobId
from penstock.blob.channel_history import ChannelHistory, TabletInfo
from penstock.blob.config import GroupConfig, static_group
from penstock.blob.controller import Controller
from penstock.blob.disk import Buffer, Disk, DiskSpace, FilePiece
from penstock.blob.get_operation import GetResult
from penstock.blob.local_disk import LocalDisk
from penstock.blob.local_group import LocalGroup
from penstock.blob.options import GroupOptions, VDiskOptions
from penstock.blob.probe import DEGRADED, HEALTHY, LOST, READ_ONLY, DiskProbe, GroupProbe, group_state
from penstock.blob.proxy import DiscoverResult, GroupProxy, RangeResult
from penstock.blob.status import Reply, Status, Submitted
from penstock.blob.storage import BlobStorage, TabletStorage, open_local_vdisk
from penstock.blob.topology import Erasure, VDiskId
from penstock.blob.vdisk import VDisk
from penstock.blob.vector import Content, Vector, contiguous

__all__ = [
    "BLOB_SIZE_MAX",
    "COOKIE_MAX",
    "DEGRADED",
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
    "Content",
    "Controller",
    "DiscoverResult",
    "Disk",
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
    "RangeResult",
    "Reply",
    "Status",
    "Submitted",
    "TabletInfo",
    "TabletStorage",
    "VDisk",
    "VDiskId",
    "VDiskOptions",
    "Vector",
    "contiguous",
    "group_state",
    "open_local_vdisk",
    "static_group",
]
