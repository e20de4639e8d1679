"""The schema registry of a broker; its schemas are in the topic `_schemas`."""

from penstock.broker.schema_registry.errors import RegistryError, invalid_version, schema_not_found, subject_not_found
from penstock.broker.schema_registry.names import DEFAULT_CONTEXT, context_of, in_context, normal_subject, resource_topic
from penstock.broker.schema_registry.partition import (
    LogChangedError,
    LogPage,
    OwnSchemaPartition,
    append_log,
    prepare_log,
    read_log,
    schemas_topic,
)
from penstock.broker.schema_registry.records import Reference, SchemaValue
from penstock.broker.schema_registry.registry import LATEST, NewSchema, SchemaRegistry
from penstock.broker.schema_registry.settings import config_of, mode_of
from penstock.broker.schema_registry.state import RegistryState
from penstock.broker.schema_registry.topic_ids import TopicIds

__all__ = [
    "DEFAULT_CONTEXT",
    "LATEST",
    "LogChangedError",
    "LogPage",
    "NewSchema",
    "OwnSchemaPartition",
    "Reference",
    "RegistryError",
    "RegistryState",
    "SchemaRegistry",
    "SchemaValue",
    "TopicIds",
    "append_log",
    "config_of",
    "context_of",
    "in_context",
    "invalid_version",
    "mode_of",
    "normal_subject",
    "prepare_log",
    "read_log",
    "resource_topic",
    "schema_not_found",
    "schemas_topic",
    "subject_not_found",
]
