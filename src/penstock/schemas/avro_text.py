"""Writes an Avro schema the way Avro's own library for Java does, so that texts which differ in spaces or in the order of keys
are one schema, here as in other registries."""

from __future__ import annotations

from typing import Any

from penstock.schemas.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Props,
    Record,
    Union,
)


class AvroWriter:
    """Writes one schema; types of `known` names are written as names. With `normalize`, properties are sorted."""

    def __init__(self, known: frozenset[str], *, normalize: bool = False) -> None:
        self._seen: set[str] = set(known)
        self._normalize = normalize

    def json_of(self, of_type: AvroType, namespace: str = "") -> Any:
        """A type as a JSON value."""
        if isinstance(of_type, Primitive):
            return {"type": of_type.kind, **self._props(of_type.props)} if of_type.props else of_type.kind
        if isinstance(of_type, Array):
            return {"type": "array", "items": self.json_of(of_type.items, namespace), **self._props(of_type.props)}
        if isinstance(of_type, Map):
            return {"type": "map", "values": self.json_of(of_type.values, namespace), **self._props(of_type.props)}
        if isinstance(of_type, Union):
            return [self.json_of(branch, namespace) for branch in of_type.branches]
        if of_type.name in self._seen:
            return of_type.short_name if of_type.namespace in ("", namespace) else of_type.name
        self._seen.add(of_type.name)
        written: dict[str, Any] = {"type": of_type.kind, "name": of_type.short_name}
        if of_type.namespace != namespace:
            written["namespace"] = of_type.namespace
        if of_type.doc is not None:
            written["doc"] = of_type.doc
        if isinstance(of_type, Record):
            written["fields"] = [self._field(field, of_type.namespace) for field in of_type.fields]
        elif isinstance(of_type, Enum):
            written["symbols"] = of_type.symbols
            if of_type.default is not None:
                written["default"] = of_type.default
        elif isinstance(of_type, Fixed):
            written["size"] = of_type.size
        return {**written, **self._props(of_type.props), **_aliases(of_type)}

    def _field(self, field: Field, namespace: str) -> dict[str, Any]:
        written: dict[str, Any] = {"name": field.name, "type": self.json_of(field.type, namespace)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            written["default"] = field.default
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = field.aliases
        return {**written, **self._props(field.props)}

    def _props(self, props: Props) -> Props:
        return dict(sorted(props.items())) if self._normalize else props


def _aliases(named: Named) -> dict[str, Any]:
    if not named.aliases:
        return {}
    prefix = named.namespace + "." if named.namespace else ""
    return {"aliases": [alias.removeprefix(prefix) if prefix else alias for alias in named.aliases]}
