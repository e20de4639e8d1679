"""How what a YDB message has beyond data and time is kept in a record: as headers, ours first and always in this order. They mean
this only in batches that this gateway has written (record_format.py); anywhere else they are metadata like all others.

ydb.producer      the producer id (the seed's SourceId)
ydb.seqno         its number, in decimal digits
ydb.group         the message group, if it is not the producer id
ydb.session.NAME  what the writer said of its session, under each NAME
NAME              metadata of the message; its item __key is the key of the record and no header

A header of another gateway whose name means something here is given to readers under kafka.header.NAME.
"""

from __future__ import annotations

from typing import Final

PRODUCER: Final = b"ydb.producer"
SEQNO: Final = b"ydb.seqno"
GROUP: Final = b"ydb.group"
SESSION: Final = b"ydb.session."
OWN_PREFIX: Final = "ydb."
KEY_ITEM: Final = "__key"
SEQNO_MAX: Final = (1 << 63) - 1
SEQNO_DIGITS_MAX: Final = 19


def seqno_of(value: bytes) -> int:
    """The number in a header; 0 if there is none that a message can have."""
    number = int(value) if len(value) <= SEQNO_DIGITS_MAX and value.isdigit() else 0
    return number if number <= SEQNO_MAX else 0


def item_name(name: bytes) -> str:
    """The name of the metadata item that shows a header of another gateway."""
    text = name.decode(errors="replace")
    return f"kafka.header.{text}" if text == KEY_ITEM or text.startswith(OWN_PREFIX) else text
