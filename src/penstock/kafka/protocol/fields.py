"""How a message is declared: a class whose fields carry their wire type, versions, nullability and tag.

    class TopicProduceData(Message):
        name: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

Versions are written as in Kafka's own descriptions: "3+", "0-12", "5". The right-hand sides are `Field`s posing as values of
the type they describe, so that mypy holds each annotation against its wire type; the metaclass turns them into slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar, cast, dataclass_transform, overload

ZERO_UUID = bytes(16)
VERSION_MAX = 0x7FFF


class Splice:
    """Records given by reference: buffers and opaque pieces (of files) that are `size` bytes in all."""

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: Sequence[object], size: int) -> None:
        self.pieces = pieces
        self.size = size

    def __len__(self) -> int:
        return self.size


Records: TypeAlias = bytes | bytearray | memoryview | Splice


class VersionRange:
    """The versions from `first` to `last`, both included."""

    __slots__ = ("first", "last")

    def __init__(self, text: str) -> None:
        first, dash, last = text.partition("-")
        self.first = int(first.rstrip("+"))
        if first.endswith("+"):
            self.last = VERSION_MAX
        else:
            self.last = int(last) if dash else self.first

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


class Field:
    """One field of a message; `kind` is a key of `PACKED`, or "string", "bytes", "records", "array" or "struct"."""

    __slots__ = ("default", "item", "kind", "name", "nullable", "struct", "tag", "versions")

    def __init__(self, kind: str, versions: str, nullable: str | None, tag: int | None, default: object) -> None:
        self.kind = kind
        self.versions = VersionRange(versions)
        self.nullable = None if nullable is None else VersionRange(nullable)
        self.tag = tag
        self.default = default
        self.name = ""
        self.item: Field | None = None
        """What an array holds, when that is not a struct."""
        self.struct: type[Message] | None = None
        """What a struct is, or an array of structs holds."""

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable

    @property
    def makes_default(self) -> bool:
        """Whether each new message needs a default of its own, because the default can be changed in place."""
        return self.default is MADE


class _Made:
    """Marks a default that is created for each message: an empty list, or a struct of defaults."""

    def __repr__(self) -> str:
        return "..."


MADE = _Made()

# Wire types of fixed size, by their format in `struct`.
PACKED = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d", "uuid": "16s"}


@dataclass_transform(kw_only_default=True, eq_default=True)
class MessageType(type):
    """Turns the fields of a message class into slots, and writes its constructor."""

    fields: tuple[Field, ...]

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> MessageType:
        fields = []
        for key in [key for key, value in namespace.items() if isinstance(value, Field)]:
            field: Field = namespace.pop(key)
            field.name = key
            fields.append(field)
        namespace["__slots__"] = tuple(field.name for field in fields)
        message_type = super().__new__(cls, name, bases, namespace)
        message_type.fields = tuple(fields)
        if fields:
            message_type.__init__ = _constructor(message_type.fields)  # type: ignore[misc] # each class gets its own, as a dataclass does
        return message_type


class Message(metaclass=MessageType):
    """Base of all messages: compared by value, shown with the fields that differ from their defaults."""

    fields: ClassVar[tuple[Field, ...]]

    __hash__ = None  # type: ignore[assignment] # a message is changed in place

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.fields)

    def __repr__(self) -> str:
        default = type(self)()
        shown = [
            f"{field.name}={value!r}"
            for field in self.fields
            if (value := getattr(self, field.name)) != getattr(default, field.name)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _constructor(fields: tuple[Field, ...]) -> Callable[..., None]:
    scope: dict[str, Any] = {"MADE": MADE}
    parameters, body = [], []
    for field in fields:
        scope[f"default_{field.name}"] = field.default
        parameters.append(f"{field.name}=default_{field.name}")
        if field.makes_default:
            scope[f"make_{field.name}"] = list if field.kind == "array" else field.struct
            body.append(f" self.{field.name} = make_{field.name}() if {field.name} is MADE else {field.name}")
        else:
            body.append(f" self.{field.name} = {field.name}")
    exec(f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(body), scope)
    return cast(Callable[..., None], scope["__init__"])


M = TypeVar("M", bound=Message)
T = TypeVar("T")


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> bool:
    return cast(bool, Field("bool", versions, None, tag, default))


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int8", versions, None, tag, default))


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int16", versions, None, tag, default))


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("uint16", versions, None, tag, default))


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int32", versions, None, tag, default))


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int64", versions, None, tag, default))


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> float:
    return cast(float, Field("float64", versions, None, tag, default))


def uuid(versions: str = "0+", *, default: bytes = ZERO_UUID, tag: int | None = None) -> bytes:
    return cast(bytes, Field("uuid", versions, None, tag, default))


@overload
def string(versions: str = "0+", *, default: str = "", tag: int | None = None) -> str: ...
@overload
def string(versions: str = "0+", *, nullable: str, default: str | None = "", tag: int | None = None) -> str | None: ...
def string(versions: str = "0+", *, nullable: str | None = None, default: str | None = "", tag: int | None = None) -> str | None:
    return cast(str, Field("string", versions, nullable, tag, default))


@overload
def octets(versions: str = "0+", *, default: bytes = b"", tag: int | None = None) -> bytes: ...
@overload
def octets(versions: str = "0+", *, nullable: str, default: bytes | None = b"", tag: int | None = None) -> bytes | None: ...
def octets(
    versions: str = "0+", *, nullable: str | None = None, default: bytes | None = b"", tag: int | None = None
) -> bytes | None:
    """A short string of bytes, copied out of the frame."""
    return cast(bytes, Field("bytes", versions, nullable, tag, default))


def record_set(versions: str = "0+", *, nullable: str | None = None) -> Records | None:
    """Record batches, a view of the frame when read; a `Splice` or any buffer when written."""
    return cast(bytes, Field("records", versions, nullable, None, None))


@overload
def array(item: type[M], versions: str = "0+", *, tag: int | None = None) -> list[M]: ...
@overload
def array(
    item: type[M], versions: str = "0+", *, nullable: str, tag: int | None = None, default: _Made | None = MADE
) -> list[M] | None: ...
@overload
def array(item: T, versions: str = "0+", *, tag: int | None = None) -> list[T]: ...
@overload
def array(
    item: T, versions: str = "0+", *, nullable: str, tag: int | None = None, default: _Made | None = MADE
) -> list[T] | None: ...
def array(
    item: Any,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: _Made | None = MADE,
) -> Any:
    field = Field("array", versions, nullable, tag, default)
    if isinstance(item, Field):
        field.item = item
    else:
        field.struct = item
    return field


@overload
def struct(item: type[M], versions: str = "0+") -> M: ...
@overload
def struct(item: type[M], versions: str = "0+", *, nullable: str) -> M | None: ...
@overload
def struct(item: type[M], versions: str = "0+", *, tag: int) -> M | None: ...
def struct(item: Any, versions: str = "0+", *, nullable: str | None = None, tag: int | None = None) -> Any:
    """A struct of its own: made of defaults, or `None` where it may be null or, being tagged, absent."""
    field = Field("struct", versions, nullable, tag, MADE if nullable is None and tag is None else None)
    field.struct = item
    return field
