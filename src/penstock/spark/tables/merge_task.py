"""Tasks of a merge: rows become changes, files lose the rows of changed keys, and the rows that remain of each key are written.

A change is a row of the table with these columns beside it:

    _order                                        what decides which row of a key is the last: a column, or the record's time
    _seen_partition, _seen_offset                 where the record is; 0 for rows of a query
    _deleted                                      whether the key is deleted
    _stored                                       whether the row comes from the table
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.spark.errors import RowError
from penstock.spark.pipelines.spec import MergeSpec
from penstock.spark.range_read import read_range_with_dead
from penstock.spark.ranges import OffsetRange
from penstock.spark.tables.changelog_task import last_rows
from penstock.spark.tables.record_columns import VALUE, TopicRead
from penstock.spark.tables.schemas import conform
from penstock.spark.tables.table import TableReader
from penstock.spark.tables.task_writer import DataFile, TaskWriter

ORDER: Final = "_order"
PLACE: Final = ("_seen_partition", "_seen_offset")
DELETED: Final = "_deleted"
STORED: Final = "_stored"
VALID_FROM: Final = "_valid_from"
VALID_TO: Final = "_valid_to"
CURRENT: Final = "_is_current"
_ROW: Final = "_row"
_RANK: Final = "_rank"
_KNOWN: Final = "_known"


@dataclass(frozen=True)
class ChangeLayout:
    """The columns of changes. It is pickled to tasks."""

    merge: MergeSpec
    table: pa.Schema
    order: pa.DataType

    @property
    def schema(self) -> pa.Schema:
        """Those of the table, then those beside it."""
        beside = [
            (ORDER, self.order),
            (PLACE[0], pa.int32()),
            (PLACE[1], pa.int64()),
            (DELETED, pa.bool_()),
            (STORED, pa.bool_()),
        ]
        return pa.schema([*self.table, *(pa.field(name, kind) for name, kind in beside)])

    def changes(self, rows: pa.RecordBatch, order: pa.Array, place: Sequence[pa.Array], deleted: pa.Array) -> pa.RecordBatch:
        """Rows of the pipeline as changes."""
        is_stored = pa.array(np.zeros(rows.num_rows, bool))
        table = conform(rows.select([name for name in rows.schema.names if name in self.table.names]), self.table)
        return pa.RecordBatch.from_arrays(
            [*table.columns, order.cast(self.order), *place, deleted, is_stored], schema=self.schema
        )

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the table as they take part in a merge."""
        count = rows.num_rows
        order = rows.column(VALID_FROM if self.merge.history else str(self.merge.order_by)).cast(self.order)
        place = pa.array(np.zeros(count, np.int32)), pa.array(np.zeros(count, np.int64))
        flags = pa.array(np.zeros(count, bool)), pa.array(np.ones(count, bool))
        return pa.RecordBatch.from_arrays([*rows.columns, order, *place, *flags], schema=self.schema)

    def deletes(self, rows: pa.RecordBatch) -> pa.Array:
        """Which rows delete by their column."""
        column = self.merge.delete_column
        if column is None:
            return pa.array(np.zeros(rows.num_rows, bool))
        text = rows.column(column).cast(pa.string())
        return pc.fill_null(pc.is_in(text, value_set=pa.array(self.merge.delete_values, pa.string())), False)


class ChosenRows(Protocol):
    """Chooses rows of a batch. It is pickled to tasks."""

    def among(self, rows: pa.RecordBatch) -> pa.Array:
        """Which of the rows are chosen."""
        ...


@dataclass(frozen=True)
class ReadRecordsTask:
    """Reads ranges of records as changes; those without a key are left out, as they are dead letters, and those that are not
    chosen."""

    layout: ChangeLayout
    reads: Mapping[str, TopicRead]
    ranges: Sequence[OffsetRange]
    chosen: ChosenRows | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.ranges[number])

    def _read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        merge = self.layout.merge
        read = self.reads.get(wanted.topic_partition.topic) or self.reads[""]
        for records, _ in read_range_with_dead(read.options, read.layout, wanted):
            rows = keyed_rows(read, records, merge.key)
            place = records.column("partition"), records.column("offset")
            is_tombstone = records.column(VALUE).is_null()
            order = records.column("timestamp") if merge.order_by is None else rows.column(merge.order_by)
            if merge.history and pa.types.is_timestamp(order.type):
                # A version that a tombstone ends must end at some time, and a tombstone has that of its record alone.
                order = pc.if_else(is_tombstone, records.column("timestamp").cast(order.type), order)
            deleted = pc.or_(is_tombstone, self.layout.deletes(rows))
            wanted_rows = has_key(rows, merge.key)
            if self.chosen is not None:
                wanted_rows = pc.and_(wanted_rows, self.chosen.among(rows))
            yield self.layout.changes(rows, order, place, deleted).filter(wanted_rows)


@dataclass(frozen=True)
class ReadFrameTask:
    """Turns rows of a query into changes."""

    layout: ChangeLayout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        merge = self.layout.merge
        for rows in batches:
            count = rows.num_rows
            if not pc.all(has_key(rows, merge.key), min_count=0).as_py():
                raise RowError(
                    f"a row of the result has null in the key of the merge ({', '.join(merge.key)}); leave such rows out with "
                    "WHERE, tombstones among them"
                )
            order = pa.nulls(count, self.layout.order) if merge.order_by is None else rows.column(merge.order_by)
            place = pa.array(np.zeros(count, np.int32)), pa.array(np.zeros(count, np.int64))
            yield self.layout.changes(rows, order, place, self.layout.deletes(rows))


@dataclass(frozen=True)
class ReadStoredTask:
    """Reads the rows of some files that have one of the keys."""

    layout: ChangeLayout
    reader: TableReader
    files: Sequence[DataFile]
    keys: pa.Table

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in self.reader.read(self.files[number]):
                    yield self.layout.stored(rows.filter(among(rows, self.keys)))


@dataclass(frozen=True)
class DropKeysTask:
    """Rewrites a file without the rows of some keys. Returns None if it has none of them."""

    reader: TableReader
    writer: TaskWriter
    keys: pa.Table
    name: str

    def __call__(self, number: int, file: DataFile) -> list[DataFile] | None:
        names = self.keys.column_names
        range_of_keys = pc.min_max(self.keys[names[0]])
        if not self.reader.may_hold(file, names[0], range_of_keys["min"].as_py(), range_of_keys["max"].as_py()):
            return None
        if not any(pc.any(among(rows, self.keys)).as_py() for rows in self.reader.read(file, names) if rows.num_rows):
            return None
        kept = (rows.filter(pc.invert(among(rows, self.keys))) for rows in self.reader.read(file))
        return self.writer.write((rows for rows in kept if rows.num_rows), f"{self.name}-kept-{number:05d}")


@dataclass(frozen=True)
class WriteMergedTask:
    """Writes what remains of changes; all of a key are in one task."""

    layout: ChangeLayout
    writer: TaskWriter
    name: str
    is_query: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        given = list(batches)
        files: list[DataFile] = []
        rows = pa.Table.from_batches(given) if given else None
        if rows is not None and rows.num_rows:
            merge = self.layout.merge
            merged = versions(rows, merge) if merge.history else last_of_each_key(rows, merge, is_query=self.is_query)
            merged = merged.select(self.layout.table.names)
            files = self.writer.write(merged.to_batches(), f"{self.name}-{number:05d}")
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(files)], pa.binary())], names=["files"])


def last_of_each_key(rows: pa.Table, merge: MergeSpec, *, is_query: bool) -> pa.Table:
    """The last row of each key, unless it deletes the key."""
    keys = list(merge.key)
    if merge.order_by is not None:
        if not is_query:
            rows = _without_what_tombstones_delete(rows, keys)
        beside = {_KNOWN: rows[ORDER].is_valid().cast(pa.int8()), _RANK: pc.invert(rows[STORED]).cast(pa.int8())}
        ordered = _sorted(rows, [_KNOWN, ORDER, _RANK, *PLACE], beside)
        last = last_rows(ordered, keys)
    elif is_query:
        last = last_rows(rows, keys)
        if last.num_rows < rows.num_rows:
            raise RowError(
                f"a batch has two rows of one key ({', '.join(keys)}), and nothing says which is the last; give the merge "
                "order_by"
            )
    else:
        # Within a partition the later offset wins; across partitions the later timestamp.
        by_partition = last_rows(_sorted(rows, list(PLACE)), [*keys, PLACE[0]])
        last = last_rows(_sorted(by_partition, [ORDER]), keys)
    return last.filter(pc.invert(last[DELETED]))


def _without_what_tombstones_delete(rows: pa.Table, keys: list[str]) -> pa.Table:
    """A deletion without a value of `order_by`, such as a tombstone, deletes what came before it: the stored row, and those of
    its key at lower offsets of its partition. Later ones stay, whatever their value."""
    deletions = rows.filter(pc.and_(rows[DELETED], rows[ORDER].is_null()))
    if not deletions.num_rows:
        return rows
    partition, offset = PLACE
    until = deletions.group_by([*keys, partition]).aggregate([(offset, "max")])
    # Other columns stay out of the joins, which do not take nested ones.
    numbered = rows.select([*keys, *PLACE, STORED]).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    stored = numbered.filter(numbered[STORED]).join(until.select(keys), keys, join_type="left semi")
    read = numbered.filter(pc.invert(numbered[STORED])).join(until, [*keys, partition], join_type="inner")
    read = read.filter(pc.less_equal(read[offset], read[f"{offset}_max"]))
    is_left = np.ones(rows.num_rows, bool)
    is_left[stored[_ROW].to_numpy()] = False
    is_left[read[_ROW].to_numpy()] = False
    return rows.filter(pa.array(is_left))


def versions(rows: pa.Table, merge: MergeSpec) -> pa.Table:
    """All versions of each key, each valid until the next begins or the key is deleted. Changes may come late: a version is put
    where it belongs. Of changes at the same time the last wins."""
    if rows[ORDER].null_count:
        raise RowError(
            f"a row has null in {merge.order_by}, which says when its version begins; leave such rows out. Tombstones have it, "
            "unless the column is a timestamp: delete by a row with a value (merge.delete) instead"
        )
    is_stored = rows[STORED].combine_chunks()
    ends = rows[VALID_TO] if VALID_TO in rows.column_names else pa.nulls(rows.num_rows, rows[ORDER].type)
    # A version that is over ends as if its key were deleted then: the next one, if there is any, begins at the same time.
    over = rows.filter(pc.and_(is_stored, pc.is_valid(ends)))
    over = _replaced(over, {ORDER: over[VALID_TO], DELETED: pa.array(np.ones(over.num_rows, bool))})
    rank = pa.chunked_array(
        [pa.array(np.where(is_stored.to_numpy(zero_copy_only=False), 1, 2)), pa.array(np.zeros(over.num_rows, int))]
    )
    events = pa.concat_tables([rows, over])
    events = _sorted(events, [*merge.key, ORDER, _RANK, *PLACE], {_RANK: rank})
    count = events.num_rows
    following = pa.array(np.minimum(np.arange(1, count + 1), count - 1))
    is_same = pa.array(np.arange(count) < count - 1)
    for name in merge.key:
        column = events[name].combine_chunks()
        is_same = pc.and_(is_same, pc.equal(column, column.take(following)))
    order = events[ORDER].combine_chunks()
    until = pc.if_else(is_same, order.take(following), pa.scalar(None, order.type))
    events = _replaced(events, {VALID_FROM: order, VALID_TO: until, CURRENT: until.is_null()})
    replaced = pc.fill_null(pc.equal(order, until), False)
    return events.filter(pc.and_(pc.invert(events[DELETED]), pc.invert(replaced)))


def _replaced(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    for name, column in columns.items():
        at = rows.column_names.index(name)
        rows = rows.set_column(at, rows.schema.field(at), column)
    return rows


def _sorted(rows: pa.Table, by: Sequence[str], beside: Mapping[str, Any] | None = None) -> pa.Table:
    """Rows in order; `beside` are columns that are only sorted by."""
    keyed = rows
    for name, column in (beside or {}).items():
        keyed = keyed.append_column(name, column)
    return rows.take(pc.sort_indices(keyed.select(list(by)), sort_keys=[(name, "ascending") for name in by]))


def among(rows: pa.RecordBatch, keys: pa.Table) -> pa.Array:
    """Which rows have one of the keys."""
    names = keys.column_names
    if len(names) == 1:
        return pc.is_in(rows.column(names[0]), value_set=keys[names[0]].combine_chunks())
    numbered = pa.Table.from_batches([rows.select(names)]).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    found = numbered.join(keys, names, join_type="left semi")[_ROW].to_numpy()
    is_found = np.zeros(rows.num_rows, bool)
    is_found[found] = True
    return pa.array(is_found)


class WithoutMergeKey:
    """Records that lack a column of the merge's key."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self.reason = f"it lacks {' or '.join(key)}, by which rows are merged"

    def among(self, read: TopicRead, records: pa.RecordBatch) -> pa.Array:
        """See `RefusedRecords`."""
        return pc.invert(has_key(keyed_rows(read, records, self._key), self._key))


def has_key(rows: pa.RecordBatch, key: Sequence[str]) -> pa.Array:
    """Which rows have every column of the key."""
    valid = rows.column(key[0]).is_valid()
    for name in key[1:]:
        valid = pc.and_(valid, rows.column(name).is_valid())
    return valid


def keyed_rows(read: TopicRead, records: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Records as rows. Those that lack the key, such as tombstones, have it from the record's key: JSON with the columns, or the
    text of the only one."""
    rows = read.rows(records)
    names = [name for name in key if not name.startswith("_")]
    lacking = pc.invert(has_key(rows, key))
    if not names or not pc.any(lacking, min_count=0).as_py():
        return rows
    at = pa.array(np.flatnonzero(lacking.to_numpy(zero_copy_only=False)))
    found = [_key_of(value, names) for value in records.column("key").take(at).to_pylist()]
    for name in names:
        field = rows.schema.field(name)
        values = pa.array([_cast(each.get(name), field.type) for each in found], field.type)
        column = pc.replace_with_mask(rows.column(name), lacking, values)
        rows = rows.set_column(rows.schema.names.index(name), field, column)
    return rows


def _key_of(key: bytes | None, names: Sequence[str]) -> dict[str, Any]:
    if key is None:
        return {}
    try:
        value = json.loads(key)
    except ValueError:
        value = key.decode("utf-8", "replace")
    if isinstance(value, dict):
        payload = value.get("payload")
        return payload if isinstance(payload, dict) else value
    return {names[0]: value} if len(names) == 1 else {}


def _cast(value: Any, kind: pa.DataType) -> Any:
    """A value of a record's key as one of a column; None if it is none."""
    if value is None:
        return None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return pa.scalar(text.encode() if pa.types.is_binary(kind) else text).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
