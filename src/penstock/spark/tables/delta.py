"""Delta tables, by delta-rs. A commit holds the files and, as application transactions, the pipeline's progress:

    penstock/PIPELINE                   the number of the commit
    penstock/PIPELINE/run               the run that made it
    penstock/PIPELINE/topics            which of the properties penstock.PIPELINE.N names the topics
    penstock/PIPELINE/TOPIC-PARTITION   the next offset

The log keeps such numbers for ever and cannot hold text, so the names and ids of topics are in a property of the table. It is set
before the first commit that refers to it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from penstock.kafka.client import TopicPartition
from penstock.spark.tables.errors import TableConflictError, TableLogError, TableOptionError
from penstock.spark.tables.files import LocalStore, make_directory, object_options, sync_directory
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.schemas import SchemaChange, plain_type
from penstock.spark.tables.table import Table
from penstock.spark.tables.task_writer import DataFile, TaskWriter

LOG: Final = "_delta_log"
_PROPERTY: Final = re.compile(r"penstock\.(.+)\.\d+")


class Delta(Table):
    """A Delta table at a location."""

    _table: DeltaTable | None = None

    def refresh(self) -> None:
        if self._table is not None:
            self._table.update_incremental()
            return
        try:
            self._table = DeltaTable(self.store.root, storage_options=self._options())
        except TableNotFoundError:
            self._table = None

    def every_progress(self) -> dict[str, Progress]:
        if self._table is None:
            return {}
        names = [_PROPERTY.fullmatch(name) for name in self._table.metadata().configuration]
        by_pipeline = {name[1]: self._progress_of(name[1]) for name in names if name is not None}
        return {name: progress for name, progress in by_pipeline.items() if progress is not None}

    def progress(self) -> Progress | None:
        return None if self._table is None else self._progress_of(self.pipeline)

    def _progress_of(self, pipeline: str) -> Progress | None:
        batch = self._version("", pipeline)
        if batch is None:
            return None
        run, number = self._version("/run", pipeline), self._version("/topics", pipeline)
        topics = self._topics(number or 0, pipeline)
        offsets = {}
        for topic, known in topics["topics"].items():
            for partition in known["partitions"]:
                offset = self._version(f"/{topic}-{partition}", pipeline)
                if offset is not None:
                    offsets[TopicPartition(topic, partition)] = offset
        ids = {topic: known["id"] for topic, known in topics["topics"].items() if known["id"]}
        return Progress(run or 0, batch, offsets, ids, topics["query"])

    def schema(self) -> pa.Schema | None:
        if self._table is None:
            return None
        derived = {cut.name for cut in self.cuts if cut.unit is not None}
        schema = pa.schema(self._table.schema().to_arrow())
        return pa.schema(
            [pa.field(field.name, plain_type(field.type), field.nullable) for field in schema if field.name not in derived]
        )

    def data_files(self) -> list[DataFile]:
        assert self._table is not None, "there is a table"
        features = self._table.protocol().reader_features or ()
        if "deletionVectors" in features and pa.table(self._table.deletion_vectors()).num_rows:
            raise TableOptionError(
                f"{self} has deletion vectors, which are not supported here; run OPTIMIZE or REORG on it first"
            )
        actions = pa.table(self._table.get_add_actions(flatten=False))
        names = self._partition_names()
        return [
            DataFile(
                row["path"],
                int(row["num_records"]),
                row["size_bytes"],
                tuple(_text(row["partition"][name]) for name in names),
            )
            for row in actions.to_pylist()
        ]

    def writer(self) -> TaskWriter:
        schema = self.schema()
        assert schema is not None, "the table is prepared"
        return TaskWriter(self.store, schema, self.cuts, file_bytes=self.spec.compact_file_bytes)

    def vacuum(self, after_s: float) -> int:
        assert self._table is not None, "there is a table"
        hours = int(after_s // 3600)
        return len(self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))

    def close(self) -> None:
        """Nothing to close."""

    def _partition_names(self) -> list[str]:
        assert self._table is not None, "there is a table"
        return list(self._table.metadata().partition_columns)

    def _make(self, schema: pa.Schema) -> None:
        derived = [pa.field(cut.name, cut.derived_type) for cut in self.cuts if cut.unit is not None]
        if isinstance(self.store, LocalStore):
            make_directory(Path(self.store.directory))
        try:
            self._table = DeltaTable.create(
                self.store.root,
                schema=Schema.from_arrow(pa.schema([*schema, *derived])),
                mode="error",
                partition_by=[cut.name for cut in self.cuts],
                storage_options=self._options(),
            )
        except DeltaError as error:
            self._table = None
            if DeltaTable.is_deltatable(self.store.root, storage_options=self._options()):
                raise TableConflictError(f"{self} was made by somebody else: {error}") from error
            raise
        self._sync()

    def _change(self, change: SchemaChange, schema: pa.Schema) -> None:
        assert self._table is not None, "there is a table"
        fields = Schema.from_arrow(pa.schema(change.added)).fields
        try:
            self._table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
        except CommitFailedError as error:
            raise TableConflictError(f"{self} was changed by somebody else: {error}") from error
        self._sync()

    def _widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        return False

    def _try_commit(self, added: Sequence[DataFile], removed: Sequence[DataFile], progress: Progress, rewrites: bool) -> None:
        assert self._table is not None, "there is a table"
        number = self._name_topics(progress)
        now_ms = int(time.time() * 1000)
        names = [cut.name for cut in self.cuts]
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, dict(zip(names, file.values, strict=True)), now_ms, not rewrites, file.stats)
            for file in added
        ]
        actions += [
            RemoveAction(file.path, not rewrites, now_ms, file.size, dict(zip(names, file.values, strict=True)))
            for file in removed
        ]
        versions = {"": progress.batch, "/run": progress.run, "/topics": number}
        versions |= {f"/{topic_partition}": offset for topic_partition, offset in progress.offsets.items()}
        properties = CommitProperties(
            custom_metadata={"penstock": json.dumps({"pipeline": self.pipeline, **progress.to_json()})},
            # A commit that conflicts with another is refused, and this run checks whether it is fenced.
            max_commit_retries=0,
            app_transactions=[Transaction(f"penstock/{self.pipeline}{name}", version) for name, version in versions.items()],
        )
        try:
            self._table.create_write_transaction(actions, "append", self._table.schema(), names, commit_properties=properties)
        except CommitFailedError as error:
            raise TableConflictError(f"{self} was changed by somebody else: {error}") from error
        self._table.update_incremental()
        self._sync()

    def _name_topics(self, progress: Progress) -> int:
        """The number of the property with the topics of a commit; it is set now if there is none."""
        assert self._table is not None, "there is a table"
        topics: dict[str, dict[str, Any]] = {}
        for topic, partition in sorted(progress.offsets):
            known = topics.setdefault(topic, {"id": progress.topic_ids.get(topic, ""), "partitions": []})
            known["partitions"].append(partition)
        wanted = {"topics": topics, "query": progress.query}
        number = self._version("/topics", self.pipeline)
        if number is not None and self._topics(number, self.pipeline) == wanted:
            return number
        number = 0 if number is None else number + 1
        name = f"penstock.{self.pipeline}.{number}"
        try:
            self._table.alter.set_table_properties({name: json.dumps(wanted)}, raise_if_not_exists=False)
        except CommitFailedError as error:
            raise TableConflictError(f"{self} was changed by somebody else: {error}") from error
        self._table.update_incremental()
        return number

    def _topics(self, number: int, pipeline: str) -> dict[str, Any]:
        assert self._table is not None, "there is a table"
        name = f"penstock.{pipeline}.{number}"
        value = self._table.metadata().configuration.get(name)
        if value is None:
            raise TableLogError(f"{self} has lost its property {name}, which names the topics it holds")
        known: dict[str, Any] = json.loads(value)
        return known

    def _version(self, name: str, pipeline: str) -> int | None:
        assert self._table is not None, "there is a table"
        return self._table.transaction_version(f"penstock/{pipeline}{name}")

    def _options(self) -> dict[str, str] | None:
        return None if isinstance(self.store, LocalStore) else object_options(self.spec.options)

    def _sync(self) -> None:
        """Sync the log, which delta-rs leaves in the page cache. Before this, a power cut may leave an empty entry: readers see
        an empty commit, and since the offsets are lost with it, the batch is written again."""
        if not isinstance(self.store, LocalStore) or self._table is None:
            return
        log = Path(self.store.directory, LOG)
        for name in sorted(os.listdir(log))[-3:]:
            if (log / name).is_file():
                with (log / name).open("rb") as file:
                    os.fsync(file.fileno())
        sync_directory(log)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)
