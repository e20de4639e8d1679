"""Columns that follow the subject of a schema registry: those of its last schema, from the next batch on."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.spark.options import REGISTRY
from penstock.spark.pipelines.spec import PipelineSpec, SourceSpec, ValueSpec
from penstock.spark.registered_values import avro_text, column_type
from penstock.spark.registry_client import RegistryAddress, SchemaRegistry

SCHEMA_IN_JSON: Final = ("avro", "debezium-avro")


def registered_schema(form: str, address: RegistryAddress, subject: str) -> str:
    """The last schema of a subject as a format takes it: as Avro's JSON, or as columns. RegistryError or OptionError if there is
    none."""
    registry = SchemaRegistry(address)
    latest = registry.latest(subject)
    if form == REGISTRY:
        return column_type(registry, latest).removeprefix("STRUCT<").removesuffix(">")
    return avro_text(registry, latest)


def followed(spec: PipelineSpec) -> PipelineSpec:
    """A pipeline with the columns that its subjects have now; the same object if nothing has changed. Records up to an end that
    was read before have no later schema: it is registered before a record names it."""
    source = spec.source
    value = _followed(source.value)
    values = {topic: _followed(own) for topic, own in source.values.items()}
    if value is source.value and all(values[topic] is own for topic, own in source.values.items()):
        return spec
    changed: SourceSpec = replace(source, value=value, values=values)
    return replace(spec, source=changed)


def _followed(value: ValueSpec) -> ValueSpec:
    if value.registry is None or value.subject is None:
        return value
    schema = registered_schema(value.format, value.registry, value.subject)
    return value if schema == value.schema else replace(value, schema=schema)
