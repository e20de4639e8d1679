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
from penstock.tablet.key_index import Chain, Change, KeyIndex
from penstock.tablet.kv_tablet import KvOptions, KvTablet
from penstock.tablet.log_format import Append, Place
from penstock.tablet.probe import TabletProbe
from penstock.tablet.sequencer import Draft, acknowledge

__all__ = [
    "CHANNELS",
    "Append",
    "Chain",
    "Change",
    "Command",
    "Concat",
    "DamagedTabletError",
    "DeleteRange",
    "Draft",
    "GetStatus",
    "KeyIndex",
    "KeyInfo",
    "KvOptions",
    "KvTablet",
    "Place",
    "RangeResult",
    "Read",
    "ReadRange",
    "ReadResult",
    "Request",
    "Result",
    "TabletProbe",
    "TabletStatus",
    "Write",
    "acknowledge",
]
