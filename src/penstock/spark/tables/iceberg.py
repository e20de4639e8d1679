"""Iceberg tables, by pyiceberg with any of its catalogs; by default a SQLite file beside the data. A commit is one change of the
table: a snapshot with the files, and the pipeline's progress in the property `penstock.PIPELINE`.

pyiceberg would retry a commit that lost a race on top of the winner's: with our rows in both, that doubles them. So tables are
told not to retry commits, and the loser first checks whether it still owns the pipeline.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat

from penstock.spark.tables.errors import TableConflictError, TableOptionError
from penstock.spark.tables.files import LocalStore, file_store, make_directory, object_options
from penstock.spark.tables.partitioning import UNITS
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.schemas import SchemaChange, is_wider, plain_type, small_offsets
from penstock.spark.tables.table import Table
from penstock.spark.tables.task_writer import DataFile, TaskWriter

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

FOLDER: Final = "data/"
CATALOG: Final = "catalog.db"
PREFIX: Final = "penstock."
NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
SYNCED_FILES: Final = "penstock.spark.tables.iceberg_files.SyncedFileIO"
_S3_NAMES: Final = {
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
}


class Iceberg(Table):
    """An Iceberg table in a catalog."""

    _table: IcebergTable | None = None
    _catalog: Catalog | None = None

    def refresh(self) -> None:
        if not self.spec.catalog and not self._has_catalog():
            self._table = None
            return
        try:
            self._table = self._open_catalog().load_table(self.name)
        except NoSuchTableError:
            self._table = None
            return
        self.store = file_store(self._table.location(), self.spec.options)

    @property
    def name(self) -> str:
        """The table's name in its catalog."""
        given = self.spec.name or Path(self.spec.location or "table").name
        return given if "." in given else f"penstock.{given}"

    def every_progress(self) -> dict[str, Progress]:
        properties = {} if self._table is None else self._table.properties
        return {
            name.removeprefix(PREFIX): Progress.from_json(json.loads(value))
            for name, value in properties.items()
            if name.startswith(PREFIX)
        }

    def schema(self) -> pa.Schema | None:
        if self._table is None:
            return None
        schema = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        return pa.schema([pa.field(field.name, plain_type(field.type), field.nullable) for field in schema])

    def data_files(self) -> list[DataFile]:
        return [
            DataFile(self._relative(file.file_path), file.record_count, file.file_size_in_bytes, self._values_of(file))
            for file in self._files()
        ]

    def writer(self) -> TaskWriter:
        assert self._table is not None, "the table is prepared"
        with_ids = schema_to_pyarrow(self._table.schema(), include_field_ids=True)
        return TaskWriter(
            self.store,
            pa.schema([small_offsets(field) for field in with_ids]),
            self.cuts,
            folder=FOLDER,
            file_bytes=self.spec.compact_file_bytes,
            keeps_cuts=True,
            keeps_footer=True,
        )

    def vacuum(self, after_s: float) -> int:
        from penstock.spark.tables.iceberg_vacuum import remove_orphans

        assert self._table is not None, "there is a table"
        before = datetime.now(UTC) - timedelta(seconds=after_s)
        self._table.maintenance.expire_snapshots().older_than(before).commit()
        self.refresh()
        return remove_orphans(self._table, self.store, int(before.timestamp() * 1000))

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _partition_names(self) -> list[str]:
        assert self._table is not None, "there is a table"
        return [field.name for field in self._table.spec().fields]

    def _make(self, schema: pa.Schema) -> None:
        catalog = self._open_catalog()
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        location = None if self.spec.location is None else self._location(self.spec.location)
        try:
            making = catalog.create_table_transaction(self.name, _known_types(schema), location, properties=NO_RETRIES)
            with making, making.update_spec() as spec:
                for cut in self.cuts:
                    spec.add_field(cut.source, cut.unit or "identity", cut.name)
        except (TableAlreadyExistsError, CommitFailedException) as error:
            raise TableConflictError(f"{self} was made by somebody else: {error}") from error

    def _change(self, change: SchemaChange, schema: pa.Schema) -> None:
        assert self._table is not None, "there is a table"
        wanted = _known_types(pa.schema([*change.added, *change.widened]))
        try:
            with self._table.update_schema() as update:
                update.union_by_name(wanted)
        except CommitFailedException as error:
            raise TableConflictError(f"{self} was changed by somebody else: {error}") from error

    def _widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        return is_wider(has, wanted)

    def _try_commit(self, added: Sequence[DataFile], removed: Sequence[DataFile], progress: Progress, rewrites: bool) -> None:
        table = self._table
        assert table is not None, "there is a table"
        gone = {file.path for file in removed}
        leaving = [file for file in self._files() if self._relative(file.file_path) in gone] if gone else []
        if len(leaving) != len(gone):
            raise TableConflictError(f"{self} no longer has {len(gone) - len(leaving)} of the files that are to be replaced")
        try:
            if table.properties.get("commit.retry.num-retries") != "0":
                table = table.transaction().set_properties(NO_RETRIES).commit_transaction()
            transaction = table.transaction()
            transaction.set_properties({self._property: json.dumps(progress.to_json())})
            update = transaction.update_snapshot(snapshot_properties={"penstock.pipeline": self.pipeline})
            # Even a commit without files makes a snapshot: stale commits are detected by the last snapshot.
            with update.overwrite() if leaving else update.fast_append() as change:
                for file in added:
                    change.append_data_file(self._described(table, file))
                for old in leaving:
                    change.delete_data_file(old)
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise TableConflictError(f"{self} was changed by somebody else: {error}") from error

    def _described(self, table: IcebergTable, file: DataFile) -> IcebergFile:
        metadata = table.metadata
        statistics = data_file_statistics_from_parquet_metadata(
            pickle.loads(file.footer),
            compute_statistics_plan(metadata.schema(), metadata.properties),
            parquet_path_to_id_mapping(metadata.schema()),
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{metadata.location.rstrip('/')}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(metadata.spec(), metadata.schema()),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def _files(self) -> list[IcebergFile]:
        assert self._table is not None, "there is a table"
        tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise TableOptionError(f"{self} has delete files, which are not supported here; run rewrite_data_files on it first")
        return [task.file for task in tasks]

    def _values_of(self, file: IcebergFile) -> tuple[str | None, ...]:
        """The partition of a file as text; Iceberg stores times as numbers of units since 1970."""
        values: list[str | None] = []
        assert self._table is not None, "there is a table"
        for number, field in enumerate(self._table.spec().fields):
            value: Any = file.partition[number]
            unit = str(field.transform)
            if value is not None and unit in UNITS:
                value = _moment(unit, value).strftime(UNITS[unit])
            values.append(None if value is None else str(value).lower() if isinstance(value, bool) else str(value))
        return tuple(values)

    def _relative(self, path: str) -> str:
        assert self._table is not None, "there is a table"
        root = self._table.location().rstrip("/") + "/"
        if not path.startswith(root):
            raise TableOptionError(f"{self} has a file outside of its location: {path}; only tables within it are worked on")
        return path.removeprefix(root)

    @property
    def _property(self) -> str:
        return f"{PREFIX}{self.pipeline}"

    def _location(self, location: str) -> str:
        store = file_store(location, self.spec.options)
        return f"file://{store.root}" if isinstance(store, LocalStore) else store.root

    def _open_catalog(self) -> Catalog:
        if self._catalog is None:
            given = dict(self.spec.catalog)
            s3 = object_options(self.spec.options)
            properties = {_S3_NAMES[name]: value for name, value in s3.items() if name in _S3_NAMES}
            if not given:
                given = self._default_catalog()
            name = given.pop("name", "penstock")
            self._catalog = load_catalog(name, **{"py-io-impl": SYNCED_FILES, **properties, **given})
        return self._catalog

    def _has_catalog(self) -> bool:
        """Whether the default catalog exists; readers do not create it."""
        return Path(self._local_directory(), CATALOG).exists()

    def _default_catalog(self) -> dict[str, str]:
        directory = self._local_directory()
        make_directory(Path(directory))
        return {"type": "sql", "uri": f"sqlite:///{directory}/{CATALOG}", "warehouse": f"file://{directory}"}

    def _local_directory(self) -> str:
        store = None if self.spec.location is None else file_store(self.spec.location, {})
        if not isinstance(store, LocalStore):
            raise TableOptionError(
                f"{self} needs a catalog, such as {{type: rest, uri: https://…}} or {{type: sql, uri: sqlite:////path/to.db}}; "
                "only a table in a local directory has one by default"
            )
        return store.directory


def _moment(unit: str, value: Any) -> datetime:
    if unit == "year":
        return datetime(1970 + int(value), 1, 1, tzinfo=UTC)
    if unit == "month":
        return datetime(1970 + int(value) // 12, int(value) % 12 + 1, 1, tzinfo=UTC)
    step = timedelta(days=1) if unit == "day" else timedelta(hours=1)
    return datetime(1970, 1, 1, tzinfo=UTC) + int(value) * step


def _known_types(schema: pa.Schema) -> pa.Schema:
    """Widen small integers: Iceberg has none below 32 bits."""
    small = (pa.int8(), pa.int16())
    return pa.schema([field.with_type(pa.int32()) if field.type in small else field for field in schema])
