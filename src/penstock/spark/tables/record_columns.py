"""Maps records of topics to rows of a table: metadata of a record under names with an underscore, the fields of a decoded value
under their own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.spark.columns import Layout, default_schema, layout
from penstock.spark.options import ReadOptions
from penstock.spark.pipelines.spec import PipelineSpec, ValueSpec
from penstock.spark.pipelines.topic_source import source_options
from penstock.spark.tables.errors import TableSchemaError
from penstock.spark.value_formats import value_format, value_type_of

VALUE: Final = "value"


@dataclass(frozen=True)
class TopicRead:
    """How the records of one topic are read and mapped to columns. It is pickled to tasks."""

    options: ReadOptions
    layout: Layout
    metadata: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        source = self.layout.schema
        columns = [pa.field(f"_{name}", source.field(name).type) for name in self.metadata]
        kind = self.layout.value_type
        columns += [pa.field(VALUE, pa.binary())] if kind is None else [field.with_nullable(True) for field in kind]
        return pa.schema(columns)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Records as rows of the table."""
        columns = [batch.column(name) for name in self.metadata]
        value = batch.column(VALUE)
        columns += [value] if self.layout.value_type is None else value.flatten()
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def topic_reads(
    spec: PipelineSpec, topics: Sequence[str], metadata: Sequence[str], also: Sequence[str] = ()
) -> dict[str, TopicRead]:
    """How each topic is read; `also` is read but not a column of the table. Needs a Spark session to parse schemas."""
    by_format: dict[ValueSpec, TopicRead] = {}
    reads = {}
    wanted = (*metadata, *(["headers"] if spec.source.headers and "headers" not in metadata else []))
    for topic in topics:
        value = spec.source.value_of(topic)
        if value not in by_format:
            by_format[value] = _read(spec, topic, wanted, also)
        reads[topic] = by_format[value]
    return reads


def _read(spec: PipelineSpec, topic: str, metadata: tuple[str, ...], also: Sequence[str]) -> TopicRead:
    given = source_options(spec, spec.source.value_of(topic))
    # Dead letters keep their keys.
    options = replace(given, columns=tuple(dict.fromkeys((*metadata, *also, "key", "offset", VALUE))))
    kind = value_type_of(options)
    read = StructType.fromDDL(default_schema(options, kind))
    assert isinstance(read, StructType), "columns make a struct"
    columns = layout(read, options)
    value_format(options, columns.value_type, fails=False)  # to fail here, not in a task
    topic_read = TopicRead(options, columns, metadata)
    names = [name.lower() for name in topic_read.schema.names]
    for name in names:
        if names.count(name) > 1:
            raise TableSchemaError(
                f"values of topic {topic!r} have a field {name!r}, and there is another column of that name; rename it, or leave "
                "it out with the table's metadata"
            )
    return topic_read


def table_schema(reads: Mapping[str, TopicRead]) -> pa.Schema:
    """The columns of a table that takes all of these topics."""
    fields: dict[str, pa.Field] = {}
    for topic, read in reads.items():
        for field in read.schema:
            known = fields.setdefault(field.name, field)
            if known.type != field.type:
                raise TableSchemaError(
                    f"values of topic {topic!r} have {field.name!r} as {field.type}, those of another topic as {known.type}: one "
                    "table cannot hold both"
                )
    return pa.schema(list(fields.values()))
