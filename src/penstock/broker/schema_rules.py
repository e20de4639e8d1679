"""Which schemas the messages of a topic must name and match, as its configuration says, and the check of a batch against them."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.blob import Buffer
from penstock.kernels.schema_ids import PAYLOAD_FIELDS, SCHEMA_ID, find_unknown, list_payloads
from penstock.queue import InvalidBatchError
from penstock.schemas import ValueCheck

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
    """What is checked; None for what is not. With `decodes`, it must also match the schema that it names."""

    key: SubjectStrategy | None
    value: SubjectStrategy | None
    decodes: bool = False

    @property
    def is_by_record(self) -> bool:
        """Whether a subject is named after the record of its schema."""
        return any(strategy is not None and strategy.by_record for strategy in (self.key, self.value))


class AllowedIds(NamedTuple):
    """The sorted ids of schemas that keys and values may name; None where any bytes may be. They are in arrays, which kernels
    open sooner than numpy's: that is most of what the check of a small batch costs."""

    topic: str
    key: array[int] | None
    value: array[int] | None

    def check(self, records: Buffer, begin: int, count: int) -> None:
        """Check the records of a batch, which begin at a byte. UnknownSchemaError names those that are at fault."""
        key, value = self.key, self.value
        if key is not None and find_unknown(records, begin, count, key, True, -1)[0] >= 0:
            raise self._error("key", list(_unknown(records, begin, count, key, "key")))
        if value is not None and find_unknown(records, begin, count, value, False, -1)[0] >= 0:
            raise self._error("value", list(_unknown(records, begin, count, value, "value")))

    def check_payloads(self, records: Buffer, begin: int, count: int, checks: Mapping[int, ValueCheck]) -> None:
        """Check that what names a schema also matches it; it must have passed `check`. UnmatchedSchemaError names the records
        that do not, MissingChecksError the schemas whose check is not among the given ones."""
        checked = [what for ids, what in ((self.key, "key"), (self.value, "value")) if ids is not None]
        tables = [(what, _payloads(records, begin, count, what)) for what in checked]
        named = [(what, table, schema_id) for what, table in tables for schema_id in np.unique(table[:, SCHEMA_ID]).tolist()]
        missing = {schema_id for _, _, schema_id in named if schema_id not in checks}
        if missing:
            raise MissingChecksError(missing)
        faults: list[RecordFault] = []
        for what, table, schema_id in named:
            payloads = np.ascontiguousarray(table[table[:, SCHEMA_ID] == schema_id])
            mismatches = checks[schema_id].find_invalid(records, payloads, NAMED_MAX)
            faults += (RecordFault(row, f"the {what} does not match schema {schema_id}: {why}") for row, why in mismatches)
        if faults:
            faults.sort()
            raise UnmatchedSchemaError(
                f"message {faults[0].record} of the batch is refused by topic {self.topic!r} "
                f"(penstock.schema.validation=full): {faults[0].why}",
                tuple(faults[:NAMED_MAX]),
            )

    def named_ids(self, records: Buffer, begin: int, count: int) -> list[int]:
        """The ids of all schemas that records name where these are checked."""
        ids_named: set[int] = set()
        for ids, what in ((self.key, "key"), (self.value, "value")):
            if ids is not None:
                ids_named.update(np.unique(_payloads(records, begin, count, what)[:, SCHEMA_ID]).tolist())
        return sorted(ids_named)

    def _error(self, what: str, unknown: list[tuple[int, int]]) -> UnknownSchemaError:
        faults = tuple(RecordFault(row, f"the {what} {_naming(schema_id)}") for row, schema_id in unknown)
        return UnknownSchemaError(
            f"message {faults[0].record} of the batch is refused by topic {self.topic!r} (penstock.schema.validation): "
            f"{faults[0].why}; register the schema and use a serializer of the registry",
            faults,
        )


def _unknown(records: Buffer, begin: int, count: int, ids: array[int], what: str) -> Iterator[tuple[int, int]]:
    row = -1
    for _ in range(NAMED_MAX):
        row, schema_id = find_unknown(records, begin, count, ids, what == "key", row)
        if row < 0:
            return
        yield row, schema_id


def _payloads(records: Buffer, begin: int, count: int, what: str) -> NDArray[np.int64]:
    """Where the payloads of keys or values are."""
    table = np.empty((count, PAYLOAD_FIELDS), np.int64)
    return table[: list_payloads(records, begin, count, what == "key", table)]


def _naming(schema_id: int) -> str:
    return "names no schema" if schema_id < 0 else f"names schema {schema_id}, which is not one of its subject"


class RecordFault(NamedTuple):
    """What is wrong with one record of a batch, counted from 0."""

    record: int
    why: str


class RefusedRecordsError(InvalidBatchError):
    """Records of a batch are refused; nothing of the batch is stored."""

    code = "refused_records"

    def __init__(self, message: str, faults: tuple[RecordFault, ...]) -> None:
        super().__init__(message)
        self.faults = faults


class UnknownSchemaError(RefusedRecordsError):
    """Messages of a batch name no schema that is registered for their topic."""

    code = "unknown_schema"


class UnmatchedSchemaError(RefusedRecordsError):
    """Messages of a batch do not match the schema that they name."""

    code = "unmatched_schema"


class MissingChecksError(Exception):
    """Some schemas have to be compiled first."""

    def __init__(self, schema_ids: set[int]) -> None:
        super().__init__(f"the checks of schemas {sorted(schema_ids)} are not in memory")
        self.schema_ids = schema_ids


class SchemaIds(Protocol):
    """The registry as the intake of batches asks it. `current` has answers of `allowed` by topic, as long as they are true."""

    current: dict[str, tuple[SchemaRule, AllowedIds]]

    def allowed(self, topic: str, rule: SchemaRule) -> AllowedIds:
        """The ids that messages of a topic may name. PartitionUnavailableError while the registry is being loaded."""
        ...

    def may_learn(self, rule: SchemaRule) -> bool:
        """Whether a schema that is not allowed may be so after `learn`."""
        ...

    async def learn(self, rule: SchemaRule, schema_ids: Collection[int]) -> None:
        """Learn of all schemas that are registered by now, and of which records these are. UnavailableError if that is not
        possible now."""
        ...

    async def load_checks(self, schema_ids: Collection[int]) -> Mapping[int, ValueCheck]:
        """The checks of values of some schemas, by their ids. InvalidBatchError if there is none for one of them."""
        ...

    def checks(self) -> Mapping[int, ValueCheck]:
        """The checks that are in memory. It may be read from other threads."""
        ...
