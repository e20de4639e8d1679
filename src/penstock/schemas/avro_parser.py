"""Reads the JSON of an Avro schema as the specification has it: names, namespaces, unions, defaults. An error says where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.schemas.avro_types import NO_DEFAULT, PRIMITIVES, Array, AvroType, Enum, Field, Fixed, Map, Primitive, Record, Union
from penstock.schemas.errors import InvalidSchemaError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TYPE_KEYS: Final = {
    "record": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "error": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "enum": {"type", "name", "namespace", "doc", "aliases", "symbols", "default"},
    "fixed": {"type", "name", "namespace", "doc", "aliases", "size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_KEYS: Final = {"name", "type", "doc", "default", "order", "aliases"}
_ORDERS: Final = ("ascending", "descending", "ignore")
_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}
FIXED_SIZE_MAX: Final = (1 << 31) - 1


class AvroParser:
    """Parses one schema. `known` are types of its references, by full name; what it defines itself is added to `names`."""

    def __init__(self, known: Mapping[str, AvroType]) -> None:
        self.names: dict[str, AvroType] = dict(known)

    def parse(self, source: Any) -> AvroType:
        """The type at the root of a schema."""
        return self._type(source, "", "")

    def _type(self, source: Any, namespace: str, path: str) -> AvroType:
        if isinstance(source, str):
            return self._reference(source, namespace, path)
        if isinstance(source, list):
            return self._union(source, namespace, path)
        if not isinstance(source, dict):
            raise _error(path, f"a type is a name, an object or an array, not {_shown(source)}")
        kind = source.get("type")
        if isinstance(kind, dict | list):
            return self._type(kind, namespace, path + "/type")
        if not isinstance(kind, str):
            raise _error(path, "an object needs the name of a type as its 'type'" if kind is None else f"no type: {_shown(kind)}")
        props = {key: value for key, value in source.items() if key not in _TYPE_KEYS.get(kind, {"type"})}
        if kind in PRIMITIVES:
            return Primitive(kind, props)
        if kind == "array":
            return Array(self._type(_needed(source, "items", path), namespace, path + "/items"), props)
        if kind == "map":
            return Map(self._type(_needed(source, "values", path), namespace, path + "/values"), props)
        if kind in ("record", "error"):
            return self._record(source, kind, namespace, path, props)
        if kind == "enum":
            return self._enum(source, namespace, path, props)
        if kind == "fixed":
            return self._fixed(source, namespace, path, props)
        return self._reference(kind, namespace, path)

    def _reference(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full_name)
        if found is None:
            raise _error(path, f"there is no type {full_name!r}; define it before it is used, or name it in the references")
        return found

    def _union(self, source: list[Any], namespace: str, path: str) -> Union:
        branches: list[AvroType] = []
        seen: set[str] = set()
        for number, item in enumerate(source):
            branch = self._type(item, namespace, f"{path}/{number}")
            if isinstance(branch, Union):
                raise _error(f"{path}/{number}", "a union cannot contain another one directly")
            name = branch.name if isinstance(branch, Record | Enum | Fixed) else branch.kind
            if name in seen:
                raise _error(f"{path}/{number}", f"the union has {name!r} twice")
            seen.add(name)
            branches.append(branch)
        return Union(branches)

    def _record(self, source: dict[str, Any], kind: str, namespace: str, path: str, props: dict[str, Any]) -> Record:
        name = _full_name(source, namespace, path)
        record = Record(kind, name, _aliases(source, name, path), _doc(source, path), props)
        self._define(name, record, path)
        fields = _needed(source, "fields", path)
        if not isinstance(fields, list):
            raise _error(path + "/fields", "the fields of a record are an array")
        seen: set[str] = set()
        for number, item in enumerate(fields):
            field = self._field(item, record.namespace, f"{path}/fields/{number}")
            if field.name in seen:
                raise _error(f"{path}/fields/{number}", f"record {name!r} has two fields {field.name!r}")
            seen.add(field.name)
            record.fields.append(field)
        return record

    def _field(self, source: Any, namespace: str, path: str) -> Field:
        if not isinstance(source, dict):
            raise _error(path, f"a field is an object, not {_shown(source)}")
        name = _name(_needed(source, "name", path), path)
        of_type = self._type(_needed(source, "type", path), namespace, path + "/type")
        order = source.get("order", "ascending")
        if order not in _ORDERS:
            raise _error(path, f"the order of a field is one of {', '.join(_ORDERS)}, not {_shown(order)}")
        aliases = source.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise _error(path, "aliases are an array of names")
        default = source.get("default", NO_DEFAULT)
        if default is not NO_DEFAULT and not _is_default(default, of_type):
            raise _error(path, f"the default {_shown(default)} of field {name!r} is no value of its type, {type_name(of_type)}")
        props = {key: value for key, value in source.items() if key not in _FIELD_KEYS}
        return Field(name, of_type, _doc(source, path), default, order, aliases, props)

    def _enum(self, source: dict[str, Any], namespace: str, path: str, props: dict[str, Any]) -> Enum:
        name = _full_name(source, namespace, path)
        symbols = _needed(source, "symbols", path)
        if not isinstance(symbols, list):
            raise _error(path + "/symbols", "the symbols of an enum are an array of names")
        for number, symbol in enumerate(symbols):
            _name(symbol, f"{path}/symbols/{number}")
        if len(set(symbols)) < len(symbols):
            raise _error(path + "/symbols", f"enum {name!r} has a symbol twice")
        default = source.get("default")
        if default is not None and default not in symbols:
            raise _error(path, f"the default {_shown(default)} of enum {name!r} is none of its symbols")
        enum = Enum("enum", name, _aliases(source, name, path), _doc(source, path), props, symbols, default)
        self._define(name, enum, path)
        return enum

    def _fixed(self, source: dict[str, Any], namespace: str, path: str, props: dict[str, Any]) -> Fixed:
        name = _full_name(source, namespace, path)
        size = _needed(source, "size", path)
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_SIZE_MAX:
            raise _error(path, f"the size of fixed type {name!r} is a number of bytes, not {_shown(size)}")
        fixed = Fixed("fixed", name, _aliases(source, name, path), _doc(source, path), props, size)
        self._define(name, fixed, path)
        return fixed

    def _define(self, name: str, named: AvroType, path: str) -> None:
        if name in PRIMITIVES:
            raise _error(path, f"{name!r} is the name of a primitive type")
        if name in self.names:
            raise _error(path, f"type {name!r} is defined twice")
        self.names[name] = named


def type_name(of_type: AvroType) -> str:
    """A type in words: its name, or its kind."""
    if isinstance(of_type, Union):
        return f"union of {', '.join(map(type_name, of_type.branches))}"
    return of_type.name if isinstance(of_type, Record | Enum | Fixed) else of_type.kind


def _full_name(source: dict[str, Any], namespace: str, path: str) -> str:
    name, own_space = _needed(source, "name", path), source.get("namespace")
    if own_space is not None and not isinstance(own_space, str):
        raise _error(path, f"a namespace is a string, not {_shown(own_space)}")
    if isinstance(name, str) and "." not in name:
        space = namespace if own_space is None else own_space
        name = f"{space}.{name}" if space else name
    for part in name.split(".") if isinstance(name, str) else [name]:
        _name(part, path)
    return str(name)


def _aliases(source: dict[str, Any], name: str, path: str) -> list[str]:
    aliases = source.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise _error(path, "aliases are an array of names")
    space = name.rpartition(".")[0]
    return [alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases]


def _doc(source: dict[str, Any], path: str) -> str | None:
    doc = source.get("doc")
    if doc is not None and not isinstance(doc, str):
        raise _error(path, f"a doc is a string, not {_shown(doc)}")
    return doc


def _name(name: Any, path: str) -> str:
    if not isinstance(name, str) or _NAME.match(name) is None:
        raise _error(path, f"{_shown(name)} is no name: a name has letters, digits and _, and does not begin with a digit")
    return name


def _needed(source: dict[str, Any], key: str, path: str) -> Any:
    if key not in source:
        raise _error(path, f"{key!r} is missing")
    return source[key]


def _is_default(value: Any, of_type: AvroType) -> bool:
    """Whether a value of JSON is one of a type; that of a union may be of any of its branches, as since Avro 1.12."""
    kind = of_type.kind
    if isinstance(of_type, Union):
        return any(_is_default(value, branch) for branch in of_type.branches)
    if isinstance(of_type, Record):
        if not isinstance(value, dict):
            return False
        given = ((field, value.get(field.name, field.default)) for field in of_type.fields)
        return all(item is not NO_DEFAULT and (item is field.default or _is_default(item, field.type)) for field, item in given)
    if isinstance(of_type, Enum):
        return value in of_type.symbols if isinstance(value, str) else False
    if isinstance(of_type, Array):
        return isinstance(value, list) and all(_is_default(item, of_type.items) for item in value)
    if isinstance(of_type, Map):
        return isinstance(value, dict) and all(_is_default(item, of_type.values) for item in value.values())
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _INTEGERS:
        return isinstance(value, int) and not isinstance(value, bool) and -_INTEGERS[kind] <= value < _INTEGERS[kind]
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _error(path: str, message: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"at {path or '/'}: {message}")
