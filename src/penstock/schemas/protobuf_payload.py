"""Values of topics with a Protobuf schema.

     number of indexes | each of them | message

The indexes are zigzag varints and say where in its file the message is: which of the messages of the file, which of those within
it, and so on; a single 0 is short for the first message of the file.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from penstock.core.varint import read_varint
from penstock.schemas.errors import UnreadableValueError
from penstock.schemas.protobuf_schema import ProtobufSchema
from penstock.schemas.protobuf_wire import find_fault

INDEXES_MAX: Final = 100


class ProtobufPayload:
    """Reads the messages of a schema."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._file = schema.linked_file()
        self._classes: dict[tuple[int, ...], Any] = {}

    def message_class(self, indexes: tuple[int, ...]) -> Any:
        """The class of the message at a place in the file."""
        known = self._classes.get(indexes)
        if known is None:
            messages = list(self._file.message_types_by_name.values())
            found = None
            for index in indexes:
                if not 0 <= index < len(messages):
                    raise UnreadableValueError(f"there is no message at {list(indexes)} of the Protobuf schema")
                found = messages[index]
                messages = list(found.nested_types)
            known = self._classes[indexes] = message_factory.GetMessageClass(found)
        return known

    def message(self, payload: bytes) -> Any:
        """The message of a payload. UnreadableValueError says in which field it does not match."""
        indexes, at = _indexes(payload)
        message_class = self.message_class(indexes)
        try:
            return message_class.FromString(payload[at:])
        except DecodeError as error:
            fault = find_fault(message_class.DESCRIPTOR, payload[at:]) or str(error)
            raise UnreadableValueError(f"the value does not match its Protobuf schema: {fault}") from error

    def check(self, payload: bytes) -> None:
        """Check a payload, also that it has all required fields."""
        message = self.message(payload)
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors()[:10])
            raise UnreadableValueError(f"the value has no required field {missing!r}")


def _indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The place of a message in its file, and where the message begins."""
    try:
        count, at = read_varint(payload, 0)
        if count == 0:
            return (0,), at
        if not 0 < count <= INDEXES_MAX:
            raise UnreadableValueError("the value does not begin with the indexes of a message")
        indexes: list[int] = []
        for _ in range(count):
            index, at = read_varint(payload, at)
            indexes.append(index)
    except IndexError as error:
        raise UnreadableValueError("the value ends within the indexes of its message") from error
    return tuple(indexes), at
