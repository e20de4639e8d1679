"""The schema registry over HTTP, as Confluent's clients speak to it."""

from penstock.gateway.schema_registry.app import SchemaRegistryListener, registry_app, signed_in
from penstock.gateway.schema_registry.callers import RegistryCaller

__all__ = ["RegistryCaller", "SchemaRegistryListener", "registry_app", "signed_in"]
