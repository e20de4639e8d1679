"""Reads how the values of topics are decoded: the format, and the schema from the file, another file or a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.core.errors import PenstockError
from penstock.spark.options import REGISTRY, VALUE_FORMATS
from penstock.spark.pipelines.section import Section
from penstock.spark.pipelines.spec import ValueSpec
from penstock.spark.pipelines.subject_following import SCHEMA_IN_JSON, registered_schema
from penstock.spark.registry_client import SETTINGS, RegistryAddress, registry_address


def read_value(value: Section, topic: str | None) -> ValueSpec:
    """How values are decoded; `topic` is theirs, where they are of one."""
    form = value.text("format", "raw", ("raw", *VALUE_FORMATS)) or "raw"
    registry = _registry(value)
    if form == "protobuf":
        return ValueSpec(form, _descriptors(value))
    given = schema = _given_schema(value)
    subject = value.text("subject", None if topic is None else f"{topic}-value")
    if registry is not None:
        schema = _registered(value, form, registry, subject) if schema is None else schema
    elif value.has("subject"):
        value.blame("subject", "it goes with registry")
    if form == REGISTRY and not value.has("registry"):
        value.blame("", "registry is missing; format registry needs the address of a schema registry")
    elif form == "raw" and value.raw("format", form) == form and (schema is not None or registry is not None):
        value.blame("schema", "raw values have no schema; set format to json or avro, or leave the schema out")
    elif form != "raw" and schema is None and not value.has("registry") and not value.has("schema_file"):
        value.blame("", f"schema is missing; format {form} needs it to know the columns")
    if form in SCHEMA_IN_JSON and schema is not None:
        _check_avro(value, form, schema)
    return ValueSpec(form, schema, registry, subject if registry is not None and given is None else None)


def _registry(value: Section) -> RegistryAddress | None:
    """The registry: its address, or a section with that and how to sign in."""
    if isinstance(value.raw("registry"), Mapping):
        return value.read("registry", _registry_section)
    url = value.text("registry")
    return None if url is None else _address(value, "registry", value.resolved("registry", url), {})


def _registry_section(section: Section) -> RegistryAddress | None:
    section.require("url", "the address of the schema registry")
    url = section.text("url")
    texts = {name: section.text(name) for name in SETTINGS}
    settings = {name: section.resolved(name, text) for name, text in texts.items() if text is not None}
    return None if url is None else _address(section, "url", section.resolved("url", url), settings)


def _address(section: Section, name: str, url: str, settings: Mapping[str, str]) -> RegistryAddress | None:
    try:
        return registry_address(url, settings)
    except PenstockError as error:
        section.blame(name, str(error))
        return None


def _given_schema(value: Section) -> str | None:
    schema, file = value.raw("schema"), value.text("schema_file")
    if schema is not None and file is not None:
        value.blame("schema_file", "schema is given as well; keep one of them")
    if isinstance(schema, Mapping):
        return json.dumps(schema)
    if schema is not None and not isinstance(schema, str):
        value.blame("schema", "it takes columns such as id BIGINT, page STRING; for avro the schema as JSON")
        return None
    if file is None:
        return schema
    content = value.file_content("schema_file", file)
    return None if content is None else content.decode("utf-8", "replace")


def _registered(value: Section, form: str, registry: RegistryAddress, subject: str | None) -> str | None:
    """The last schema of the subject: its fields are the columns."""
    if form not in (*SCHEMA_IN_JSON, REGISTRY):
        value.blame("", f"schema is missing; for format {form} it says which columns there are, also with a registry")
        return None
    if subject is None:
        value.blame("", "subject is missing; the registry has the schema under it")
        return None
    try:
        return registered_schema(form, registry, subject)
    except PenstockError as error:
        value.blame("registry", str(error))
        return None


def _descriptors(value: Section) -> str | None:
    from penstock.spark.protobuf_format import protobuf_schema, protobuf_type

    value.require("descriptor_file", "a file that `protoc --descriptor_set_out=FILE --include_imports` writes")
    value.require("message", "the message that values are, such as shop.Order")
    file, message = value.text("descriptor_file"), value.text("message")
    content = value.file_content("descriptor_file", file) if file is not None else None
    if content is None or message is None:
        return None
    schema = protobuf_schema(content, message)
    try:
        protobuf_type(schema)
    except PenstockError as error:
        value.blame("message", str(error).replace("valueSchema", "the file"))
    return schema


def _check_avro(value: Section, form: str, schema: str) -> None:
    from penstock.spark.avro_format import avro_type
    from penstock.spark.debezium_format import row_schema

    try:
        avro_type(row_schema(schema) if form == "debezium-avro" else schema)
    except PenstockError as error:
        value.blame("schema", str(error).replace("valueSchema", "the schema"))
