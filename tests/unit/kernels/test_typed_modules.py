"""The .pxd of a typed module declares what its classes have: an attribute left out is missing only where it is compiled."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.typed_modules import typed_modules

SOURCE = Path(__file__).resolve().parents[3] / "src"
_CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:\n((?:    .*\n|\n)*)", re.MULTILINE)
_IMPORT = r"^from (\S+) cimport .*\b{}\b"
_ATTRIBUTE = re.compile(r"^    cdef (?:public|readonly) .* (\w+)$", re.MULTILINE)


def _declared(types: Path) -> dict[str, set[str]]:
    """Attributes of each class, those of a base in the same or another module included."""
    found: dict[str, set[str]] = {}
    text = types.read_text(encoding="utf-8")
    for name, base, body in _CLASS.findall(text):
        inherited = set() if not base else found.get(base) or _declared(_module_of(base, text))[base]
        found[name] = inherited | set(_ATTRIBUTE.findall(body))
    return found


def _module_of(name: str, text: str) -> Path:
    """The .pxd that another one has this class from."""
    imported = re.search(_IMPORT.format(name), text, re.MULTILINE)
    assert imported is not None
    return SOURCE / f"{imported[1].replace('.', '/')}.pxd"


def _assigned(kind: ast.ClassDef) -> set[str]:
    """Attributes that a class sets on itself."""
    return {
        node.attr
        for node in ast.walk(kind)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


@pytest.mark.parametrize("name", typed_modules())
def test_every_attribute_of_a_typed_class_is_declared(name: str) -> None:
    source = typed_modules()[name]
    classes = {node.name: node for node in ast.parse(source.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}
    declared = _declared(source.with_suffix(".pxd"))
    assert declared.keys() <= classes.keys()
    missing = {kind: sorted(_assigned(classes[kind]) - attributes) for kind, attributes in declared.items()}
    assert {kind: names for kind, names in missing.items() if names} == {}
