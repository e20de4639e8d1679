"""Which schemas the messages of a topic must name, as its configuration says, and the check of a batch against them."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.blob import Buffer
from penstock.kernels.schema_ids import find_unknown
from penstock.queue import InvalidBatchError

NAMED_MAX: Final = 100  # messages of a batch that an error names


class SubjectStrategy(NamedTuple):
    """How the subject of a message is named, as Confluent's serializers do it."""

    by_topic: bool
    by_record: bool


STRATEGIES: Final = {
    "io.confluent.kafka.serializers.subject.TopicNameStrategy": SubjectStrategy(by_topic=True, by_record=False),
    "io.confluent.kafka.serializers.subject.RecordNameStrategy": SubjectStrategy(by_topic=False, by_record=True),
    "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy": SubjectStrategy(by_topic=True, by_record=True),
}


class SchemaRule(NamedTuple):
    """What is checked; None for what is not."""

    key: SubjectStrategy | None
    value: SubjectStrategy | None


class AllowedIds(NamedTuple):
    """The sorted ids of schemas that keys and values may name; None where any bytes may be."""

    topic: str
    key: NDArray[np.int64] | None
    value: NDArray[np.int64] | None

    def check(self, records: Buffer, begin: int, count: int) -> None:
        """Check the records of a batch, which begin at a byte. UnknownSchemaError names those that are at fault."""
        for ids, what in ((self.key, "key"), (self.value, "value")):
            if ids is None:
                continue
            row, schema_id = find_unknown(records, begin, count, ids, what == "key", -1)
            if row >= 0:
                raise self._error(what, schema_id, self._all_unknown(records, begin, count, ids, what == "key"))

    def _all_unknown(self, records: Buffer, begin: int, count: int, ids: NDArray[np.int64], of_keys: bool) -> tuple[int, ...]:
        found: list[int] = []
        row = -1
        while len(found) < NAMED_MAX:
            row, _ = find_unknown(records, begin, count, ids, of_keys, row)
            if row < 0:
                break
            found.append(row)
        return tuple(found)

    def _error(self, what: str, schema_id: int, rows: tuple[int, ...]) -> UnknownSchemaError:
        named = "names no schema" if schema_id < 0 else f"names schema {schema_id}, which is not one of its subject"
        return UnknownSchemaError(
            f"the {what} of message {rows[0]} of the batch {named}, and topic {self.topic!r} takes only those that do "
            f"(penstock.schema.validation); register the schema and use a serializer of the registry",
            rows,
        )


class UnknownSchemaError(InvalidBatchError):
    """Messages of a batch name no schema that is registered for their topic; nothing of the batch is stored."""

    code = "unknown_schema"

    def __init__(self, message: str, records: tuple[int, ...]) -> None:
        super().__init__(message)
        self.records = records  # which of the batch, counted from 0


class SchemaIds(Protocol):
    """The registry as the intake of batches asks it."""

    def allowed(self, topic: str, rule: SchemaRule) -> AllowedIds:
        """The ids that messages of a topic may name. PartitionUnavailableError while the registry is being loaded."""
        ...

    @property
    def may_be_behind(self) -> bool:
        """Whether other nodes register schemas, so that one may be missing here."""
        ...

    async def catch_up(self) -> None:
        """Learn of all schemas that are registered by now. UnavailableError if that is not possible now."""
        ...
