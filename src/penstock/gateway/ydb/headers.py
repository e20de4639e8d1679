"""How what a YDB message has beyond data and time is kept in a record: as headers, ours first and always in this order.

ydb.producer      the producer id (the seed's SourceId)
ydb.seqno         its number, in decimal digits
ydb.group         the message group, if it is not the producer id
ydb.session.NAME  what the writer said of its session, under each NAME
NAME              metadata of the message; its item __key is the key of the record and no header
"""

from __future__ import annotations

from typing import Final

PRODUCER: Final = b"ydb.producer"
SEQNO: Final = b"ydb.seqno"
GROUP: Final = b"ydb.group"
SESSION: Final = b"ydb.session."
OWN_PREFIX: Final = "ydb."
KEY_ITEM: Final = "__key"
