"""Records of the topic `_schemas`, in the form in which Confluent's registry keeps them: keys and values are JSON.

     {"keytype":"SCHEMA","subject":S,"version":N,"magic":1}   the schema with its id; null once it is deleted for good
     {"keytype":"CONFIG","subject":S,"magic":0}               compatibility and other settings of a subject; null S is global
     {"keytype":"MODE","subject":S,"magic":0}                 the mode
     {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}       versions up to the named one are deleted
     {"keytype":"NOOP","magic":0}                             ours has the highest id that was ever given

Each record is whole by itself, and later ones win, so that the topic is compacted and can be copied between registries.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

ID_MAX: Final = (1 << 31) - 1  # clients have four bytes for it, and no sign
SCHEMA, CONFIG, MODE, DELETE_SUBJECT, NOOP = "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "NOOP"


class RecordKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a record is about."""

    keytype: str
    subject: str | None = None
    version: int = 0
    magic: int = 0

    def pack(self) -> bytes:
        """The key as it is stored."""
        fields: dict[str, Any] = {"keytype": self.keytype}
        if self.keytype != NOOP:
            fields["subject"] = self.subject
        if self.keytype == SCHEMA:
            fields["version"] = self.version
        fields["magic"] = 1 if self.keytype == SCHEMA else 0
        return msgspec.json.encode(fields)


class Reference(msgspec.Struct, frozen=True):
    """A schema that another refers to, by the name that its text has for it."""

    name: str
    subject: str
    version: int


class SchemaValue(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One version of a subject."""

    subject: str
    version: int
    id: Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]
    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    deleted: bool = False


class DeleteValue(msgspec.Struct, frozen=True):
    """The last version that is deleted with its subject."""

    subject: str
    version: int


class NoopValue(msgspec.Struct, frozen=True, rename="camel"):
    """The highest id of each context that was ever given; ids of deleted schemas are not given again."""

    max_ids: dict[str, int] = {}


def unpack_schema(raw: bytes) -> SchemaValue:
    """The schema of a record. Other registries write null for what a schema does not have."""
    try:
        return _SCHEMAS.decode(raw)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(raw, type=dict[str, Any])
        return msgspec.convert({name: value for name, value in fields.items() if value is not None}, SchemaValue)


KEYS: Final = msgspec.json.Decoder(RecordKey)
_SCHEMAS: Final = msgspec.json.Decoder(SchemaValue)
DELETIONS: Final = msgspec.json.Decoder(DeleteValue)
NOOPS: Final = msgspec.json.Decoder(NoopValue)
