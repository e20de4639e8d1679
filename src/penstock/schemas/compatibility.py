"""Compatibility levels: against which versions a new schema is checked, and in which direction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.schema import Schema

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
DEFAULT_LEVEL: Final = "BACKWARD"


class EarlierSchema(NamedTuple):
    """A registered version that a new schema is compared with."""

    version: int
    text: str
    schema: Schema


class Conflict(NamedTuple):
    """The version that a new schema does not go with, and why."""

    earlier: EarlierSchema
    problems: list[Incompatibility]

    def messages(self, level: str, *, is_verbose: bool = True) -> list[str]:
        """The conflict in the form in which registries report it."""
        texts = [str(problem) for problem in self.problems]
        if is_verbose:
            texts += (f"{{oldSchemaVersion: {self.earlier.version}}}", f"{{oldSchema: '{self.earlier.text}'}}")
        return [*texts, f"{{compatibility: '{level}'}}"]


def is_transitive(level: str) -> bool:
    """Whether all versions count, and not only the latest."""
    return level.endswith("_TRANSITIVE")


def find_conflict(new: Schema, earlier: Iterable[EarlierSchema], level: str) -> Conflict | None:
    """The first of some versions, newest first, that a schema is not compatible with; None if there is none."""
    if level == "NONE":
        return None
    for version in earlier:
        problems: list[Incompatibility] = []
        if new.kind != version.schema.kind:
            description = f"the new schema is of type {new.kind}, version {version.version} of type {version.schema.kind}"
            problems.append(Incompatibility("SCHEMA_TYPE_MISMATCH", "/", description))
        else:
            if level.startswith(("BACKWARD", "FULL")):
                problems += new.problems_reading(version.schema)
            if level.startswith(("FORWARD", "FULL")):
                problems += version.schema.problems_reading(new)
        if problems:
            return Conflict(version, problems)
    return None
