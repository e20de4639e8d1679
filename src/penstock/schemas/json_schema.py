"""A JSON Schema: checked against the meta-schema of its draft, with its references resolved, and compared with others.

The drafts are 4, 6, 7 (the one that is meant where none is named), 2019-09 and 2020-12. Nothing is ever fetched: a reference
leads to a place in the same schema, or to a schema that is registered and named in its references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from penstock.schemas.errors import InvalidSchemaError
from penstock.schemas.incompatibility import Incompatibility
from penstock.schemas.json_schema_diff import Comparison
from penstock.schemas.json_text import read_json, write_json

DRAFTS: Final = {
    "http://json-schema.org/draft-04/schema": "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema": "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/schema": "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema": "https://json-schema.org/draft/2020-12/schema",
}
DEFAULT_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
HOPS_MAX: Final = 50  # of references that lead to references
_NO_SCHEMAS: Final = ("enum", "const", "default", "examples")  # their values may look like schemas


class JsonSchema:
    """A schema and those that it refers to."""

    kind = "JSON"

    def __init__(self, root: Any, draft: str, references: Mapping[str, JsonSchema]) -> None:
        self.root = root
        self.draft = draft
        self._references = references
        self._hides_siblings = "2019" not in draft and "2020" not in draft  # of a reference
        self._bases: dict[int, str] = {}
        self._places: dict[str, Any] = {}
        for name, schema in references.items():
            self._bases |= {node: urljoin(name, base) for node, base in schema._bases.items()}
            self._places |= {urljoin(name, place): node for place, node in schema._places.items()}
            self._places[name] = schema.root
        self._collect(root, "")

    @classmethod
    def parse(cls, text: str, references: Mapping[str, JsonSchema]) -> JsonSchema:
        """Parse a text. InvalidSchemaError says what is wrong with it, and where."""
        import jsonschema_rs

        root = read_json(text)
        if not isinstance(root, dict | bool):
            raise InvalidSchemaError("a JSON Schema is an object, true or false")
        named = root.get("$schema", DEFAULT_DRAFT) if isinstance(root, dict) else DEFAULT_DRAFT
        draft = DRAFTS.get(str(named).rstrip("#"))
        if draft is None:
            raise InvalidSchemaError(f"$schema is {named!r}; it must be one of {', '.join(sorted(set(DRAFTS.values())))}")
        if isinstance(root, dict):
            try:
                # The draft is named in any case: the library would fetch one that it does not know.
                jsonschema_rs.meta.validate({**root, "$schema": draft})
            except jsonschema_rs.ValidationError as error:
                place = "/".join(map(str, error.instance_path))
                raise InvalidSchemaError(f"at /{place}: {error.message[:500]}") from None
        schema = cls(root, draft, references)
        schema._check_references()
        return schema

    def text(self, *, normalize: bool = False) -> str:
        """The canonical text: without spaces, and with sorted keys if it is to be normalized."""
        return write_json(self.root, sort_keys=normalize)

    def serialized(self) -> str:
        """The text: it has no other form."""
        return self.text()

    def problems_reading(self, writer: JsonSchema) -> list[Incompatibility]:
        """Everything that keeps data which is valid for another schema from being valid for this one."""
        return Comparison(writer, self).compare(writer.root, self.root, "#")

    def retrieve(self, uri: str) -> Any:
        """What a library that validates values finds at a reference: another schema by its name, and never what is elsewhere."""
        name = uri.removeprefix("json-schema:///")
        name = next((known for known in self._references if name == known or name.endswith("/" + known)), name)
        if name not in self._references:
            raise ValueError(f"there is nothing at reference {uri!r}")
        return self._references[name].root

    def follow(self, node: Any) -> Any:
        """A schema itself, or the one that it refers to, with the keywords beside a reference if they count."""
        for _ in range(HOPS_MAX):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                return node
            target = self.resolve(node)
            beside = {} if self._hides_siblings else {key: value for key, value in node.items() if key not in ("$ref", "$defs")}
            if beside.keys() - {"title", "description", "default", "deprecated", "examples", "$comment"}:
                return {**beside, "allOf": [*beside.get("allOf", ()), target]}
            node = target
        raise InvalidSchemaError(f"reference {node.get('$ref')!r} leads to itself")

    def resolve(self, node: dict[str, Any]) -> Any:
        """What the reference of a node leads to."""
        reference = node["$ref"]
        base = self._bases.get(id(node), "")
        # A URN has no path to join a fragment to.
        uri, fragment = urldefrag(base + reference if reference.startswith("#") else urljoin(base, reference))
        if uri not in self._places:
            uri = next((name for name in self._references if uri.endswith("/" + name)), uri)
        root = self._places.get(uri)
        if root is None and uri in DRAFTS:
            return True  # the meta-schema of a draft, which is not compared with others
        if root is None:
            raise InvalidSchemaError(f"there is nothing at reference {reference!r}; name that schema in the references")
        if not fragment:
            return root
        if not fragment.startswith("/"):
            anchored = self._places.get(f"{uri}#{fragment}")
            if anchored is None:
                raise InvalidSchemaError(f"there is nothing at reference {reference!r}")
            return anchored
        return _at_pointer(root, unquote(fragment), reference)

    def nodes(self) -> Iterator[dict[str, Any]]:
        """All objects in which keywords may be."""
        return _nodes(self.root)

    def _check_references(self) -> None:
        for node in self.nodes():
            if isinstance(node.get("$ref"), str):
                self.follow(node)

    def _collect(self, node: Any, base: str) -> None:
        """Note where schemas are, by their ids and anchors."""
        if not base and node is self.root:
            self._places[""] = node
        if isinstance(node, list):
            for item in node:
                self._collect(item, base)
        if not isinstance(node, dict):
            return
        for key in ("$id", "id"):
            own = node.get(key)
            if isinstance(own, str) and own.startswith("#"):
                self._places[base + own] = node
            elif isinstance(own, str) and (key == "$id" or self._hides_siblings):
                base = urldefrag(urljoin(base, own))[0]
                self._places[base] = node
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(key), str):
                self._places[f"{base}#{node[key]}"] = node
        self._bases[id(node)] = base
        for key, value in node.items():
            if key not in _NO_SCHEMAS:
                self._collect(value, base)


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, list):
        for item in node:
            yield from _nodes(item)
    elif isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key not in _NO_SCHEMAS:
                yield from _nodes(value)


def _at_pointer(root: Any, pointer: str, reference: str) -> Any:
    node = root
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            raise InvalidSchemaError(f"there is nothing at reference {reference!r}")
    if not isinstance(node, dict | bool):
        raise InvalidSchemaError(f"reference {reference!r} does not lead to a schema")
    return node
