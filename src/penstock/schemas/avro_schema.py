"""An Avro schema: parsed, in its canonical text, and compared with others."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.schemas.avro_parser import AvroParser
from penstock.schemas.avro_resolution import resolve
from penstock.schemas.avro_text import AvroWriter
from penstock.schemas.avro_types import AvroType
from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.json_text import read_json, write_json


class AvroSchema:
    """A schema with the types of its references. `names` are all named types, for schemas that refer to this one."""

    kind = "AVRO"

    def __init__(self, root: AvroType, names: Mapping[str, AvroType], known: frozenset[str]) -> None:
        self.root = root
        self.names = names
        self._known = known

    @classmethod
    def parse(cls, text: str, references: Mapping[str, AvroSchema]) -> AvroSchema:
        """Parse a text. InvalidSchemaError says what is wrong with it, and where."""
        known: dict[str, AvroType] = {}
        for schema in references.values():
            known |= schema.names
        parser = AvroParser(known)
        root = parser.parse(read_json(text))
        return cls(root, parser.names, frozenset(known))

    def text(self, *, normalize: bool = False) -> str:
        """The canonical text: equal for schemas that differ only in how they are written."""
        return write_json(AvroWriter(self._known, normalize=normalize).json_of(self.root))

    def whole_text(self) -> str:
        """The text with the types of its references, so that it can be read by itself."""
        return write_json(AvroWriter(frozenset()).json_of(self.root))

    def serialized(self) -> str:
        """The text: it has no other form."""
        return self.text()

    def problems_reading(self, writer: AvroSchema) -> list[Incompatibility]:
        """Everything that keeps this schema from reading data of another."""
        return resolve(self.root, writer.root)
