"""Compiles the encoder of a message in one version: straight-line source, nested structs and arrays in place.

Neighbouring fields of fixed size, and a length that follows them, are packed in one call onto a `bytearray`. Where records come,
that bytearray is handed out as it is, then the records themselves, and a new one is begun: nothing large is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

from penstock.kafka.protocol import wire
from penstock.kafka.protocol.fields import MADE, PACKED, Field, Message, Splice

Encode = Callable[[Message, bytearray, list[Any]], int]

# Formats of lengths, and of a null, in the versions that are not flexible.
_LENGTH_FORMATS = {"string": "h", "bytes": "i", "records": "i", "array": "i"}


def compile_encoder(message: type[Message], version: int, flexible: bool) -> Encode:
    """A function of a message, the bytes before it and a list, to which it appends all buffers; it returns their size."""
    writer = _EncodeWriter(version, flexible)
    source = writer.function(message)
    exec(compile(source, f"<encode {message.__name__} v{version}>", "exec"), writer.scope)
    return cast(Encode, writer.scope["encode"])


class _EncodeWriter:
    """Writes the source line by line; `scope` collects what it refers to.

    In the source, `b` is the bytearray being filled, `out` the buffers before it, of `t` bytes in all; `n` is the next length to
    write, `s` the bytes of that length.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.scope: dict[str, Any] = {"pack": struct.pack, "uvarint": wire.uvarint, "Splice": Splice}
        self._lines: list[str] = []
        self._indent = 0
        self._names = 0
        self._run: list[tuple[str, str]] = []

    def function(self, message: type[Message]) -> str:
        self._line("def encode(m, b, out):")
        self._indent += 1
        self._line("t = 0")
        self._struct(message, "m")
        self._flush()
        self._line("out.append(b)")
        self._line("return t + len(b)")
        return "\n".join(self._lines)

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._indent + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _put(self, form: str, value: str = "") -> None:
        """Add a field of fixed size to the run; form "x" is a zero byte and takes no value."""
        self._run.append((form, value))

    def _flush(self) -> None:
        """Pack the run collected so far."""
        if not self._run:
            return
        form = ">" + "".join(form for form, _ in self._run)
        values = ", ".join(value for _, value in self._run if value)
        if form == ">B":
            self._line(f"b.append({values})")
        elif form == ">x":
            self._line("b.append(0)")
        elif not values:
            self._line(f"b += {bytes(len(self._run))!r}")
        else:
            name = "pack_" + form[1:].replace("?", "_bool")
            self.scope.setdefault(name, struct.Struct(form).pack)
            self._line(f"b += {name}({values})")
        self._run.clear()

    def _branches(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Write an if/else; the run so far is packed at the head of each side, together with what that side begins with."""
        before = list(self._run)
        for head, body in ((f"if {condition}:", then), ("else:", otherwise)):
            self._run = list(before)
            self._line(head)
            self._indent += 1
            body()
            self._flush()
            self._indent -= 1

    def _struct(self, message: type[Message], source: str) -> None:
        tagged = []
        for field in message.fields:
            if self.version not in field.versions:
                continue
            if field.tag is not None and self.flexible:
                tagged.append(field)
            else:
                self._value(field, f"{source}.{field.name}")
        if self.flexible:
            self._tags(sorted(tagged, key=lambda field: field.tag or 0), source)

    def _tags(self, tagged: list[Field], source: str) -> None:
        if not tagged:
            self._put("x")
            return
        conditions = [self._differs(field, f"{source}.{field.name}") for field in tagged]

        def write() -> None:
            self._put("B", " + ".join(f"(1 if {condition} else 0)" for condition in conditions))
            self._flush()
            for field, condition in zip(tagged, conditions, strict=True):
                self._line(f"if {condition}:")
                self._indent += 1
                self._tag(field, f"{source}.{field.name}")
                self._indent -= 1

        self._branches(" or ".join(conditions), write, lambda: self._put("x"))

    def _differs(self, field: Field, source: str) -> str:
        """Whether a tagged field must be written, because it is not at its default."""
        if field.kind == "struct" and not field.is_nullable(self.version):
            default = self._name("default")
            self.scope[default] = cast(type[Message], field.struct)()
            return f"{source} is not None and {source} != {default}"
        if field.default is None:
            return f"{source} is not None"
        return source if field.default is MADE else f"{source} != {field.default!r}"

    def _tag(self, field: Field, source: str) -> None:
        outer = self._name("b")
        self._line(f"{outer} = b")
        self._line("b = bytearray()")
        self._value(field, source)
        self._flush()
        self._line(f"s, b = b, {outer}")
        self._line(f"b += uvarint({field.tag}) + uvarint(len(s))")
        self._line("b += s")

    def _value(self, field: Field, source: str) -> None:
        if field.kind in PACKED:
            self._put(PACKED[field.kind], source)
            return
        value = self._name("v")
        self._line(f"{value} = {source}")
        write = {"struct": self._inner_struct, "array": self._array, "records": self._records}.get(field.kind, self._octets)
        if field.is_nullable(self.version):
            self._branches(f"{value} is None", lambda: self._null(field.kind), lambda: write(field, value))
        else:
            write(field, value)

    def _null(self, kind: str) -> None:
        if kind == "struct":
            self._put("b", "-1")
        elif self.flexible:
            self._put("x")
        else:
            self._put(_LENGTH_FORMATS[kind], "-1")

    def _length(self, kind: str, length: str) -> None:
        """Write `length`, an expression; in flexible versions as a varint of one more."""
        if not self.flexible:
            self._put(_LENGTH_FORMATS[kind], length)
            self._flush()
            return
        self._line(f"n = {length} + 1")

        def write_long() -> None:
            self._flush()
            self._line("b += uvarint(n)")

        self._branches("n < 128", lambda: self._put("B", "n"), write_long)

    def _octets(self, field: Field, value: str) -> None:
        if field.kind == "string":
            self._line(f"{value} = {value}.encode()")
        self._length(field.kind, f"len({value})")
        self._line(f"b += {value}")

    def _records(self, field: Field, value: str) -> None:
        size = self._name("size")
        self._line(f"{size} = {value}.size if type({value}) is Splice else len({value})")
        self._length(field.kind, size)
        self._line(f"if {size}:")
        self._indent += 1
        self._line("out.append(b)")
        self._line(f"t += len(b) + {size}")
        self._line(f"if type({value}) is Splice: out.extend({value}.pieces)")
        self._line(f"else: out.append({value})")
        self._line("b = bytearray()")
        self._indent -= 1

    def _array(self, field: Field, value: str) -> None:
        self._length("array", f"len({value})")
        item = field.item
        if item is not None and item.kind in PACKED and item.kind != "uuid":
            form = PACKED[item.kind]
            few = f"few_{form}"
            self.scope.setdefault(few, [packer.pack for packer in wire.few_structs(form)])
            self._line(f"n = len({value})")
            self._line(f"b += {few}[n](*{value}) if n < {wire.FEW} else pack(f'>{{n}}{form}', *{value})")
            return
        each = self._name("m")
        self._line(f"for {each} in {value}:")
        self._indent += 1
        if item is None:
            self._struct(cast(type[Message], field.struct), each)
        else:
            self._value(item, each)
        self._flush()
        self._indent -= 1

    def _inner_struct(self, field: Field, value: str) -> None:
        if field.is_nullable(self.version):
            self._put("b", "1")
        self._struct(cast(type[Message], field.struct), value)
