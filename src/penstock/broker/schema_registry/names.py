"""Names of subjects, and the contexts they are in: `:.context:subject`, where the subject itself may be empty."""

from __future__ import annotations

from typing import Final

from penstock.broker.schema_registry.errors import invalid_subject

DEFAULT_CONTEXT: Final = "."
SUBJECT_SIZE_MAX: Final = 1000


def context_of(subject: str) -> str:
    """The context that a subject is in; ids are given per context."""
    if subject.startswith(":."):
        return subject[1:].partition(":")[0]
    return DEFAULT_CONTEXT


def in_context(context: str, subject: str) -> str:
    """A subject named within a context; one that names its own is left as it is."""
    if context == DEFAULT_CONTEXT or subject.startswith(":."):
        return normal_subject(subject)
    return f":{context}:{subject}"


def normal_subject(subject: str) -> str:
    """One name for a subject of the default context: without it."""
    return subject.removeprefix(":.:")


def resource_topic(subject: str) -> str:
    """The topic whose access rules guard a subject: `orders` for `orders-value`, and one of its own name otherwise."""
    name = subject.partition(":")[2].partition(":")[2] if subject.startswith(":.") else subject
    for suffix in ("-key", "-value"):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


def check_subject(subject: str) -> None:
    """Raise if a name cannot be that of a subject."""
    is_printable = all(character >= " " and character != "\x7f" for character in subject)
    if not subject or not is_printable or len(subject.encode(errors="replace")) > SUBJECT_SIZE_MAX:
        raise invalid_subject(subject[:100])
    if subject in ("__GLOBAL", "__EMPTY") or (subject.startswith(":.") and subject.endswith(":")):
        raise invalid_subject(subject)
