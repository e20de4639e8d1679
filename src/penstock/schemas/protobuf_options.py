"""Values of options in a .proto file."""

from __future__ import annotations

from typing import Any

from penstock.schemas.errors import InvalidSchemaError


def unquoted(text: str) -> str:
    """A text without its quotes. ValueError if it has an escape that there is not."""
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    return inner.encode("latin-1", "backslashreplace").decode("unicode_escape")


def set_option(options: Any, name: str, value: object) -> None:
    """Set an option of protobuf's own. Custom ones change nothing of the data, and stay in the text alone."""
    known = options.DESCRIPTOR.fields_by_name.get(name)
    if known is None or value is None or known.message_type is not None:
        return
    text = str(value)
    try:
        if known.enum_type is not None:
            converted: object = known.enum_type.values_by_name[text].number
        elif known.cpp_type == known.CPPTYPE_BOOL:
            converted = {"true": True, "false": False}[text]
        elif known.cpp_type == known.CPPTYPE_STRING:
            converted = text
        else:
            converted = int(text, 0)
        setattr(options, name, converted)
    except (KeyError, ValueError, TypeError):
        raise InvalidSchemaError(f"{text!r} is no value of option {name}") from None
