"""Finds the field of a Protobuf message that its parser stumbled over: the parser itself only says that it did."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

DEPTH_MAX: Final = 100  # as of the parser
VARINT_SIZE_MAX: Final = 10
_VARINT, _FIXED64, _SIZED, _START_GROUP, _END_GROUP, _FIXED32 = range(6)


class _FaultError(ValueError):
    """What is wrong, and in which field."""


class _Scope(NamedTuple):
    """The message, or the group, whose fields are gone over: its descriptor, None if it is not known, where it ends, and the path
    to it."""

    message: Any
    end: int
    path: tuple[str, ...] = ()
    group: int | None = None

    def inner(self, message: Any, end: int, name: str, group: int | None = None) -> _Scope:
        """One of its fields."""
        if len(self.path) >= DEPTH_MAX:
            raise _FaultError(f"{self.named(name)} is nested deeper than {DEPTH_MAX} levels")
        return _Scope(message, end, (*self.path, name), group)

    def named(self, name: str = "") -> str:
        """A field in words."""
        path = ".".join((*self.path, name) if name else self.path)
        return f"field {path!r}" if path else "the message"


def find_fault(message: Any, raw: bytes) -> str | None:
    """What is wrong with the bytes of a message, and in which field; None if nothing is seen to be."""
    try:
        _walk(raw, 0, _Scope(message, len(raw)))
    except _FaultError as fault:
        return str(fault)
    return None


def _walk(raw: bytes, at: int, scope: _Scope) -> int:
    """Go over the fields of a message or group; returns the byte after it."""
    while at < scope.end:
        tag, at = _varint(raw, at, scope.end, scope.named())
        number, wire = tag >> 3, tag & 7
        if wire == _END_GROUP and number == scope.group:
            return at
        if number == 0 or wire > _FIXED32 or wire == _END_GROUP:
            raise _FaultError(f"{scope.named()}: there is no field at byte {at - 1}")
        field = None if scope.message is None else scope.message.fields_by_number.get(number)
        name = str(number) if field is None else field.name
        if wire == _VARINT:
            _, at = _varint(raw, at, scope.end, scope.named(name))
        elif wire == _START_GROUP:
            at = _walk(raw, at, scope.inner(field and field.message_type, scope.end, name, number))
        else:
            size = 8 if wire == _FIXED64 else 4
            if wire == _SIZED:
                size, at = _varint(raw, at, scope.end, scope.named(name))
            if size > scope.end - at:
                raise _FaultError(f"{scope.named(name)}: the value ends within it")
            if wire == _SIZED and field is not None:
                _check_content(field, raw, at, scope.inner(field.message_type, at + size, name))
            at += size
    if scope.group is not None:
        raise _FaultError(f"{scope.named()}: the value ends within it")
    return at


def _check_content(field: Any, raw: bytes, at: int, scope: _Scope) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _walk(raw, at, scope)
    elif field.type == FieldDescriptor.TYPE_STRING:
        try:
            raw[at : scope.end].decode()
        except UnicodeDecodeError:
            raise _FaultError(f"{scope.named()}: the string is not UTF-8") from None


def _varint(raw: bytes, at: int, end: int, what: str) -> tuple[int, int]:
    value = 0
    for place in range(VARINT_SIZE_MAX):
        if at + place >= end:
            raise _FaultError(f"{what}: the value ends within it")
        byte = raw[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise _FaultError(f"{what}: a number has more than {VARINT_SIZE_MAX} bytes")
