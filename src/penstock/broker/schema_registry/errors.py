"""Errors of the schema registry, with the numbers that clients of Confluent's registry know."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError


class RegistryError(InvalidRequestError):
    """A request that the registry refuses; its first three digits are the HTTP status."""

    code = "schema_registry"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def subject_not_found(subject: str) -> RegistryError:
    """There is no such subject."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """The subject has no such version."""
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(detail: str = "") -> RegistryError:
    """There is no such schema."""
    return RegistryError(40403, f"Schema {detail}not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    """The subject was deleted already."""
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    """A subject is deleted for good only after it was deleted."""
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    """The version was deleted already."""
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """A version is deleted for good only after it was deleted."""
    return RegistryError(40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted")


def level_not_configured(subject: str) -> RegistryError:
    """The subject has no compatibility level of its own."""
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> RegistryError:
    """The subject has no mode of its own."""
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def invalid_schema(detail: str) -> RegistryError:
    """The schema is not valid."""
    return RegistryError(42201, f"Invalid schema: {detail}")


def invalid_version(version: str) -> RegistryError:
    """The version is not a number."""
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "
        '"latest"',
    )


def invalid_level(level: str) -> RegistryError:
    """There is no such compatibility level."""
    return RegistryError(42203, f"Invalid compatibility level {level!r}; use one of those of GET /config in the documentation")


def invalid_mode(mode: str) -> RegistryError:
    """There is no such mode."""
    return RegistryError(42204, f"Invalid mode {mode!r}; modes are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT")


def operation_not_permitted(detail: str) -> RegistryError:
    """The mode does not allow it."""
    return RegistryError(42205, detail)


def reference_exists(detail: str) -> RegistryError:
    """Other schemas refer to what is to be deleted."""
    return RegistryError(42206, f"One or more references exist to the schema {detail}")


def invalid_subject(subject: str) -> RegistryError:
    """The name cannot be that of a subject."""
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid subject.")


def incompatible(detail: str) -> RegistryError:
    """The schema is not compatible with earlier versions."""
    return RegistryError(409, detail)
