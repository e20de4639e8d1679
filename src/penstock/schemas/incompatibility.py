"""One reason why two schemas are not compatible."""

from __future__ import annotations

from typing import NamedTuple


class Incompatibility(NamedTuple):
    """What differs and where. `kind` is the name that Confluent's registry has for it; `path` is a place in the new schema."""

    kind: str
    path: str
    description: str
    info: str = ""

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.description} (at {self.path})', additionalInfo:'{self.info}'}}"
