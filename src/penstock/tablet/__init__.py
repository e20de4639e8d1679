"""Tablets: state that one generation owns at a time, kept in BlobStorage (seeds 000 and 001)."""

from penstock.tablet.boot import CHANNELS, DamagedTabletError
from penstock.tablet.commands import (
    Command,
    Concat,
    DeleteRange,
    GetStatus,
    KeyInfo,
    RangeResult,
    Read,
    ReadRange,
    ReadResult,
    Request,
    Result,
    TabletStatus,
    Write,
)
from penstock.tablet.kv_tablet import KvOptions, KvTablet
from penstock.tablet.probe import TabletProbe

__all__ = [
    "CHANNELS",
    "Command",
    "Concat",
    "DamagedTabletError",
    "DeleteRange",
    "GetStatus",
    "KeyInfo",
    "KvOptions",
    "KvTablet",
    "RangeResult",
    "Read",
    "ReadRange",
    "ReadResult",
    "Request",
    "Result",
    "TabletProbe",
    "TabletStatus",
    "Write",
]
