"""Compiles the decoder of a message in one version: straight-line source, nested structs and arrays in place.

Neighbouring fields of fixed size, and the first byte of a length that follows them, are unpacked in one call. Every length and
count is held against the bytes left before anything is made of it; `struct` and indexing check the rest, and their complaints
become `ProtocolError` at the end of the function.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

from penstock.kafka.protocol import wire
from penstock.kafka.protocol.fields import MADE, PACKED, Field, Message

Decode = Callable[[memoryview, int], Message]

# Bytes of a length in the versions that are not flexible.
_LENGTH_FORMATS = {"string": "h", "bytes": "i", "records": "i", "array": "i"}


def compile_decoder(message: type[Message], version: int, flexible: bool) -> Decode:
    """A function of a buffer and an offset that reads `message` from there; what is left of the buffer behind it is ignored."""
    writer = _DecodeWriter(version, flexible)
    source = writer.function(message)
    exec(compile(source, f"<decode {message.__name__} v{version}>", "exec"), writer.scope)
    return cast(Decode, writer.scope["decode"])


def size_min(message: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes `message` can take, by which a count of them is held against the bytes left."""
    fields = [field for field in message.fields if version in field.versions and not (flexible and field.tag is not None)]
    return sum(_field_size_min(field, version, flexible) for field in fields) + flexible


def _field_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.kind in PACKED:
        return struct.calcsize(">" + PACKED[field.kind])
    if field.kind == "struct":
        assert field.struct is not None
        return 1 if field.is_nullable(version) else size_min(field.struct, version, flexible)
    return 1 if flexible else struct.calcsize(">" + _LENGTH_FORMATS[field.kind])


class _DecodeWriter:
    """Writes the source line by line; `scope` collects what it refers to.

    In the source, `buf` is the buffer, `o` where reading has come to, `end` its length; `n` is a length just read and `p` where
    the value of that length ends.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.scope: dict[str, Any] = {
            "new": object.__new__,
            "unpack_from": struct.unpack_from,
            "errors": (struct.error, IndexError, UnicodeDecodeError),
            "ProtocolError": wire.ProtocolError,
            "read_uvarint": wire.read_uvarint,
            "read_tag": wire.read_tag,
            "skip_tags": wire.skip_tags,
            "overrun": wire.overrun,
            "misfit": wire.misfit,
        }
        self._lines: list[str] = []
        self._indent = 0
        self._names = 0
        self._run: list[tuple[str, str]] = []

    def function(self, message: type[Message]) -> str:
        name = f"{message.__name__} v{self.version}"
        self._line("def decode(buf, o):")
        self._indent += 1
        self._line("end = len(buf)")
        self._line("try:")
        self._indent += 1
        variable = self._struct(message, message.__name__)
        self._flush()
        self._indent -= 1
        self._line("except errors as error:")
        self._line(f" raise ProtocolError(f'{name} is malformed: {{error}}') from error")
        # Bytes behind the message are passed over, as Kafka does: librdkafka leaves some behind its Metadata requests.
        self._line(f"if o > end: raise misfit({name!r}, o, end)")
        self._line(f"return {variable}")
        return "\n".join(self._lines)

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._indent + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _constant(self, prefix: str, value: object) -> str:
        for name, known in self.scope.items():
            if known is value:
                return name
        name = self._name(prefix)
        self.scope[name] = value
        return name

    def _take(self, form: str, target: str) -> None:
        self._run.append((form, target))

    def _flush(self) -> None:
        """Unpack the fields of fixed size collected so far."""
        if not self._run:
            return
        form = ">" + "".join(form for form, _ in self._run)
        targets = "".join(f"{target}, " for _, target in self._run)
        if form == ">B":
            self._line(f"{self._run[0][1]} = buf[o]")
        else:
            self._line(f"{targets.rstrip()} = {self._unpacker(form)}(buf, o)")
        self._line(f"o += {struct.calcsize(form)}")
        self._run.clear()

    def _unpacker(self, form: str) -> str:
        name = "unpack_" + form[1:].replace("?", "_bool")
        self.scope.setdefault(name, struct.Struct(form).unpack_from)
        return name

    def _struct(self, message: type[Message], path: str) -> str:
        variable = self._name("m")
        self._line(f"{variable} = new({self._constant('Class', message)})")
        tagged = []
        for field in message.fields:
            target = f"{variable}.{field.name}"
            if self.version not in field.versions:
                self._default(field, target)
            elif field.tag is not None and self.flexible:
                self._default(field, target)
                tagged.append(field)
            else:
                self._value(field, target, f"{path}.{field.name}")
        if self.flexible:
            self._tags(sorted(tagged, key=lambda field: field.tag or 0), variable, path)
        return variable

    def _default(self, field: Field, target: str) -> None:
        if field.default is not MADE:
            self._line(f"{target} = {field.default!r}")
        elif field.kind == "array":
            self._line(f"{target} = []")
        else:
            self._line(f"{target} = {self._constant('Class', field.struct)}()")

    def _tags(self, tagged: list[Field], variable: str, path: str) -> None:
        self._take("B", "n")
        self._flush()
        if not tagged:
            self._line("if n: o = skip_tags(buf, o, end, n)")
            return
        tag, stop = self._name("g"), self._name("q")
        self._line("if n:")
        self._indent += 1
        self._continue_varint()
        self._line("for _ in range(n):")
        self._indent += 1
        self._line(f"{tag}, o, {stop} = read_tag(buf, o, end)")
        for number, field in enumerate(tagged):
            self._line(f"{'elif' if number else 'if'} {tag} == {field.tag}:")
            self._indent += 1
            self._value(field, f"{variable}.{field.name}", f"{path}.{field.name}")
            self._flush()
            self._indent -= 1
        self._line(f"else: o = {stop}")
        self._line(f"if o != {stop}: raise misfit({path + ' tag'!r}, o, {stop})")
        self._indent -= 2

    def _value(self, field: Field, target: str, path: str) -> None:
        if field.kind in PACKED:
            self._take(PACKED[field.kind], target)
        elif field.kind == "struct":
            self._inner_struct(field, target, path)
        else:
            self._length(_LENGTH_FORMATS[field.kind])
            nullable = field.is_nullable(self.version)
            if nullable:
                self._line(f"if n == {0 if self.flexible else -1}: {target} = None")
                self._line("else:")
                self._indent += 1
            if field.kind == "array":
                self._array(field, target, path)
            else:
                self._octets(field.kind, target, path)
            if nullable:
                self._indent -= 1

    def _length(self, form: str) -> None:
        """Read a length or count into `n`; in flexible versions it stays the plus-one varint of the wire."""
        self._take("B" if self.flexible else form, "n")
        self._flush()
        if self.flexible:
            self._continue_varint()

    def _continue_varint(self) -> None:
        self._line("if n > 127: n, o = read_uvarint(buf, o, n)")

    def _octets(self, kind: str, target: str, path: str) -> None:
        self._line("p = o + n - 1" if self.flexible else "p = o + n")
        self._line(f"if not o <= p <= end: raise overrun({path!r}, n, end - o)")
        copied = {"string": ".tobytes().decode()", "bytes": ".tobytes()", "records": ""}[kind]
        self._line(f"{target} = buf[o:p]{copied}")
        self._line("o = p")

    def _array(self, field: Field, target: str, path: str) -> None:
        if self.flexible:
            self._line("n -= 1")
        item = field.item
        if item is None:
            assert field.struct is not None
            smallest = max(1, size_min(field.struct, self.version, self.flexible))
        else:
            smallest = _field_size_min(item, self.version, self.flexible)
        self._line(f"if not 0 <= n * {smallest} <= end - o: raise overrun({path!r}, n, end - o)")
        if item is not None and item.kind in PACKED and item.kind != "uuid":
            form = PACKED[item.kind]
            few = f"few_{form}"
            self.scope.setdefault(few, [unpacker.unpack_from for unpacker in wire.few_structs(form)])
            self._line(f"if n < {wire.FEW}: {target} = list({few}[n](buf, o))")
            self._line(f"else: {target} = list(unpack_from(f'>{{n}}{form}', buf, o))")
            self._line(f"o += n * {smallest}")
            return
        items = self._name("a")
        self._line(f"{target} = {items} = []")
        self._line("for _ in range(n):")
        self._indent += 1
        if item is None:
            variable = self._struct(cast(type[Message], field.struct), path)
        else:
            variable = self._name("v")
            self._value(item, variable, path)
        self._flush()
        self._line(f"{items}.append({variable})")
        self._indent -= 1

    def _inner_struct(self, field: Field, target: str, path: str) -> None:
        message = cast(type[Message], field.struct)
        if not field.is_nullable(self.version):
            self._line(f"{target} = {self._struct(message, path)}")
            return
        self._take("b", "n")
        self._flush()
        self._line(f"if n == -1: {target} = None")
        self._line(f"elif n != 1: raise ProtocolError(f'{path} has presence byte {{n}}, neither 1 nor -1')")
        self._line("else:")
        self._indent += 1
        variable = self._struct(message, path)
        self._flush()
        self._line(f"{target} = {variable}")
        self._indent -= 1
