"""A pipeline as its file declares it: plain values, checked when they are made by `read_spec`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.spark.options import Position
from penstock.spark.pipelines.errors import SpecError, SpecFault
from penstock.spark.registry_client import RegistryAddress

KINDS: Final[Mapping[str, str]] = {
    "export": "penstock.spark.tables.export:export_job",
    "load": "penstock.spark.pipelines.load:load_job",
    "transform": "penstock.spark.pipelines.transform:transform_job",
    "replay": "penstock.spark.pipelines.replay:replay_job",
    "compact": "penstock.spark.tables.changelog:compact_job",
    "audit": "penstock.spark.tables.audit:audit_job",
}
ROWS_MAX: Final = 1_000_000
METADATA: Final = ("topic", "partition", "offset", "timestamp", "key")  # of a record, beside its value, in an exported table


class Origin(NamedTuple):
    """Where a declaration stands: its file, and the line of each field by its path, such as `source.topics[0]`. A copy of a file
    has the name that it has in messages, and the directory of the original, where relative paths of secrets begin."""

    file: str
    lines: Mapping[str, int]
    name: str = ""
    directory: str = ""

    def fault(self, path: str, what: str) -> SpecFault:
        """Something wrong with a field; the line is its own, or that of the nearest thing around it."""
        at = path
        while at and at not in self.lines:
            cut = max(at.rfind("."), at.rfind("["))
            at = at[: max(cut, 0)]
        return SpecFault(self.name or self.file, self.lines.get(at, 1), path, what)


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """How values are decoded; a raw one stays bytes. For Avro the schema is JSON, for JSON it is DDL. `registry` is where the
    schemas of framed values are; with a `subject`, the schema is its last one, and follows it."""

    format: str = "raw"
    schema: str | None = None
    registry: RegistryAddress | None = field(default=None, repr=False)  # may hold a password
    subject: str | None = None

    @property
    def is_decoded(self) -> bool:
        """Whether values become columns."""
        return self.format != "raw"


@dataclass(frozen=True, slots=True)
class FilesSpec:
    """Files to load: a path, a directory or a pattern, on a disk or in S3. `schema` is DDL; CSV and JSON need it, Parquet has
    its own. `options` are those of the store."""

    path: str
    format: str
    schema: str | None = None
    header: bool = True
    delimiter: str = ","
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets


FAN_OUT: Final = re.compile(r"\{([^{}]+)\}")
DELETES: Final = ("d", "D", "delete", "DELETE")


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """How rows change a table by key: the row with the greatest `order_by` wins, or without it the last in its partition. A
    tombstone deletes, and so does a row whose `delete_column` is one of `delete_values`. With `history` earlier versions stay."""

    key: tuple[str, ...]
    order_by: str | None = None
    delete_column: str | None = None
    delete_values: tuple[str, ...] = DELETES
    history: bool = False


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: Delta and Parquet by location, Iceberg by catalog and name (location optional)."""

    format: str
    location: str | None = None
    name: str | None = None
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    partition_by: tuple[str, ...] = ()
    schema_evolution: str = "add_columns"
    compact_every_s: float | None = None
    compact_file_bytes: int = 128 << 20
    vacuum_after_s: float | None = None
    metadata: tuple[str, ...] = METADATA
    merge: MergeSpec | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    def __str__(self) -> str:
        return f"{self.format} table {self.name or self.location}"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What is read: topics by name or pattern, or for a load files or a table."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Position = field(default_factory=Position)
    end: Position | None = None
    value: ValueSpec = field(default_factory=ValueSpec)
    values: Mapping[str, ValueSpec] = field(default_factory=dict)
    headers: bool = False
    skips_lost_data: bool = False
    files: FilesSpec | None = None
    table: TableSpec | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    def value_of(self, topic: str) -> ValueSpec:
        """How the values of one topic are decoded."""
        return self.values.get(topic, self.value)

    def __str__(self) -> str:
        if self.files is not None:
            return f"{self.files.format} files {self.files.path}"
        if self.table is not None:
            return str(self.table)
        return f"topics like {self.pattern}" if self.pattern is not None else "topic " + ", ".join(self.topics)


class Watermark(NamedTuple):
    """How late rows may be: by which column, and how long state waits for them, as Spark writes it."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """What is made of the rows: a query over views named as the topics, or a function on DataFrames."""

    sql: str | None = None
    python: str | Callable[..., Any] | None = None
    watermark: Watermark | None = None
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    output_mode: str = "append"
    tables: Mapping[str, TableSpec] = field(default_factory=dict)
    state: str = "auto"
    checkpoint: str | None = None

    def watermark_of(self, view: str) -> Watermark | None:
        """The watermark of one view."""
        return self.watermarks.get(view, self.watermark)


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Where rows go. Columns in braces in the name of the topic, or in the name or location of the table, send each row to the
    one that they name."""

    topic: str | None = None
    table: TableSpec | None = None
    partitions: int | None = None

    @property
    def fan_out(self) -> tuple[str, ...]:
        """The columns that name the topic or the table of a row."""
        places = [self.topic] if self.table is None else [self.table.name, self.table.location]
        return tuple(dict.fromkeys(name for place in places if place is not None for name in FAN_OUT.findall(place)))

    def __str__(self) -> str:
        return f"topic {self.topic}" if self.topic is not None else str(self.table)


@dataclass(frozen=True, slots=True)
class DeadLetterSpec:
    """Where rows go that cannot be decoded; with neither, the pipeline stops at the first. A run fails if more than
    `share_max` of its rows go there."""

    topic: str | None = None
    table: TableSpec | None = None
    share_max: float = 0.1

    @property
    def stops(self) -> bool:
        """Whether such a row stops the pipeline."""
        return self.topic is None and self.table is None

    def __str__(self) -> str:
        return "stop" if self.stops else f"topic {self.topic}" if self.topic is not None else str(self.table)


@dataclass(frozen=True, slots=True)
class TriggerSpec:
    """When batches are made: `every_s` None and not once is continuous."""

    once: bool = False
    every_s: float | None = None

    def __str__(self) -> str:
        return "once" if self.once else "continuous" if self.every_s is None else f"every {self.every_s:g} s"


@dataclass(frozen=True, slots=True)
class RestartSpec:
    """How often in a row a failed batch is tried again, and how long is waited before the first time; then twice as long."""

    attempts: int = 10
    backoff_s: float = 5.0


class RunSpec(NamedTuple):
    """One run of a pipeline: its id, which fences other runs, and whether it starts with empty state if the state was lost.
    `reset` is the id of an order to start over; one that the pipeline's record names already was carried out."""

    id: str = ""
    resets_state: bool = False
    reset: str = ""


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """All that a file declares; `run` is added by who runs it."""

    name: str
    kind: str
    brokers: str
    origin: Origin
    source: SourceSpec
    target: TargetSpec
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    transform: TransformSpec | None = None
    dead_letters: DeadLetterSpec = field(default_factory=DeadLetterSpec)
    trigger: TriggerSpec = field(default_factory=TriggerSpec)
    rows_max: int = ROWS_MAX
    tasks_min: int = 1  # more than partitions: faster, but rows of a partition lose their order
    restart: RestartSpec = field(default_factory=RestartSpec)
    consumer: str = ""
    vital: bool = False
    run: RunSpec = field(default_factory=RunSpec)
    application: str = ""  # the Spark application that it shares with others when it is deployed; "" for one of its own
    data_directory: str = ""  # where relative paths of data begin, if not beside the file

    @property
    def directory(self) -> Path:
        """Where the file is."""
        return Path(self.origin.file).resolve().parent

    @property
    def checkpoint(self) -> str:
        """Where a pipeline with state keeps it; after an order to start over, in another place."""
        given = self.transform.checkpoint if self.transform is not None else None
        suffix = f".{self.run.reset[:8]}" if self.run.reset else ""
        return self.path(f".penstock/{self.name}" if given is None else given) + suffix

    def path(self, given: str) -> str:
        """A path of data as an absolute one; addresses of object stores stay as they are."""
        return given if "://" in given else self._below(Path(self.data_directory or self.directory), given)

    def code_path(self, given: str) -> str:
        """A path of code that belongs to the file, as an absolute one."""
        return self._below(self.directory, given)

    @staticmethod
    def _below(directory: Path, given: str) -> str:
        return str((directory / Path(given).expanduser()).absolute())

    def fault(self, field_path: str, what: str) -> SpecError:
        """An error about one field, with its line."""
        return SpecError([self.origin.fault(field_path, what)])
