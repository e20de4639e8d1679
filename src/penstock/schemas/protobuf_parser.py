"""Reads a .proto file into the descriptor that protoc would make of it. Names of types are resolved later, by a pool."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schemas.errors import InvalidSchemaError
from penstock.schemas.protobuf_options import set_option, unquoted
from penstock.schemas.protobuf_rules import NESTING_MAX
from penstock.schemas.protobuf_tokens import Token, tokens_of

FIELD: Final = descriptor_pb2.FieldDescriptorProto
SCALARS: Final = {
    name: getattr(FIELD, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
LABELS: Final = {"optional": FIELD.LABEL_OPTIONAL, "required": FIELD.LABEL_REQUIRED, "repeated": FIELD.LABEL_REPEATED}
EDITIONS: Final = {"2023": 1000, "2024": 1001}
INTEGERS: Final = {
    **dict.fromkeys(("TYPE_INT32", "TYPE_SINT32", "TYPE_SFIXED32"), (-(1 << 31), (1 << 31) - 1)),
    **dict.fromkeys(("TYPE_INT64", "TYPE_SINT64", "TYPE_SFIXED64"), (-(1 << 63), (1 << 63) - 1)),
    **dict.fromkeys(("TYPE_UINT32", "TYPE_FIXED32"), (0, (1 << 32) - 1)),
    **dict.fromkeys(("TYPE_UINT64", "TYPE_FIXED64"), (0, (1 << 64) - 1)),
}
INTEGER_BOUNDS: Final = {getattr(FIELD, name): bounds for name, bounds in INTEGERS.items()}
RESERVED: Final = range(19000, 20000)
NUMBER_MAX: Final = (1 << 29) - 1


class ProtobufParser:
    """Parses one file."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens_of(text)
        self._at = 0
        self._file = descriptor_pb2.FileDescriptorProto()
        self._depth = 0
        self.has_custom_options = False

    def parse(self) -> Any:
        """The descriptor of the file."""
        file = self._file
        while not self._is_kind("end"):
            word = self._next().text
            if word in ("syntax", "edition"):
                self._syntax(word)
            elif word == "package":
                file.package = self._dotted()
                self._expect(";")
            elif word == "import":
                self._import()
            elif word == "option":
                self._option(file.options)
            elif word == "message":
                self._message(file.message_type.add())
            elif word == "enum":
                self._enum(file.enum_type.add())
            elif word == "extend":
                self._extend(file.extension)
            elif word == "service":
                self._service(file.service.add())
            elif word != ";":
                raise self._error(f"{word!r} cannot stand here", back=1)
        return file

    def _syntax(self, word: str) -> None:
        self._expect("=")
        value = self._string()
        self._expect(";")
        if word == "edition":
            if value not in EDITIONS:
                raise self._error(f"there is no edition {value!r}")
            self._file.syntax, self._file.edition = "editions", EDITIONS[value]
        elif value not in ("proto2", "proto3"):
            raise self._error(f"the syntax is proto2 or proto3, not {value!r}")
        elif value == "proto3":
            self._file.syntax = value

    def _import(self) -> None:
        file = self._file
        how = self._next().text if self._is_text("public", "weak") else ""
        if how == "public":
            file.public_dependency.append(len(file.dependency))
        elif how == "weak":
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(self._string())
        self._expect(";")

    def _message(self, message: Any, *, with_name: bool = True) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"messages are nested deeper than {NESTING_MAX} levels")
        if with_name:
            message.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            self._member(message)
        self._add_synthetic_oneofs(message)
        self._depth -= 1

    def _member(self, message: Any) -> None:
        word = self._peek().text
        if word == ";":
            self._next()
        elif word == "message":
            self._next()
            self._message(message.nested_type.add())
        elif word == "enum":
            self._next()
            self._enum(message.enum_type.add())
        elif word == "oneof":
            self._next()
            self._oneof(message)
        elif word == "extend":
            self._next()
            self._extend(message.extension, message)
        elif word == "option":
            self._next()
            self._option(message.options)
        elif word == "reserved":
            self._next()
            self._reserved(message, is_enum=False)
        elif word == "extensions":
            self._next()
            self._extensions(message)
        else:
            self._field(message.field.add(), message)

    def _field(self, field: Any, parent: Any, oneof: int | None = None) -> None:
        label = self._peek().text
        if label in LABELS and oneof is None:
            self._next()
            if label == "required" and self._file.syntax == "proto3":
                raise self._error("proto3 has no required fields", back=1)
            if label == "optional" and self._file.syntax == "editions":
                raise self._error("editions have no label optional; set features.field_presence", back=1)
            field.label = LABELS[label]
            field.proto3_optional = label == "optional" and self._file.syntax == "proto3"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        else:
            field.label = FIELD.LABEL_OPTIONAL
        if oneof is not None:
            field.oneof_index = oneof
        is_map = self._is_text("map") and self._peek(1).text == "<"
        if label not in LABELS and oneof is None and not is_map and not (self._file.syntax or self._is_kind("end")):
            raise self._error(f"a field of proto2 needs a label before {label!r}: optional, required or repeated")
        if is_map:
            if label in LABELS or oneof is not None or field.extendee:
                raise self._error("a map has no label, and is neither in a oneof nor an extension")
            self._map(field, parent)
            return
        if self._is_text("group"):
            self._group(field, parent)
            return
        self._type(field)
        field.name = self._name()
        self._number(field)
        self._field_options(field)
        self._expect(";")

    def _type(self, field: Any) -> None:
        name = self._type_name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _map(self, field: Any, parent: Any) -> None:
        self._next()
        self._expect("<")
        entry = parent.nested_type.add()
        entry.options.map_entry = True
        for number, name in enumerate(("key", "value"), 1):
            part = entry.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
            self._type(part)
            self._expect("," if number == 1 else ">")
        field.name = self._name()
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        field.label, field.type_name, field.type = FIELD.LABEL_REPEATED, entry.name, FIELD.TYPE_MESSAGE
        self._number(field)
        self._field_options(field)
        self._expect(";")

    def _group(self, field: Any, parent: Any) -> None:
        self._next()
        messages = parent.message_type if parent is self._file else parent.nested_type
        group = messages.add(name=self._name())
        if not group.name[0].isupper():
            raise self._error(f"the name of group {group.name!r} begins with a capital letter", back=1)
        field.name, field.type_name, field.type = group.name.lower(), group.name, FIELD.TYPE_GROUP
        self._number(field)
        self._field_options(field)
        self._message(group, with_name=False)

    def _oneof(self, message: Any) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._accept("}"):
            if self._is_text("option") and self._peek(1).kind == "name":
                self._next()
                self._option(oneof.options)
            else:
                self._field(message.field.add(), message, index)
        if not any(field.HasField("oneof_index") and field.oneof_index == index for field in message.field):
            raise self._error(f"oneof {oneof.name!r} has no fields", back=1)

    def _enum(self, enum: Any) -> None:
        enum.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            if self._accept("option"):
                self._option(enum.options)
            elif self._accept("reserved"):
                self._reserved(enum, is_enum=True)
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._integer(-(1 << 31), (1 << 31) - 1)
                if self._accept("["):
                    self._bracket_options(value.options, value)
                self._expect(";")
        if not enum.value or (self._file.syntax == "proto3" and enum.value[0].number):
            raise self._error(f"enum {enum.name!r} needs a first value, which is 0 in proto3", back=1)

    def _reserved(self, parent: Any, *, is_enum: bool) -> None:
        while True:
            token = self._peek()
            if token.kind == "string":
                if self._file.syntax == "editions":
                    raise self._error("editions reserve names without quotes")
                parent.reserved_name.append(self._string())
            elif token.kind == "name" and self._file.syntax == "editions":
                parent.reserved_name.append(self._name())
            else:
                first, last = self._range(-(1 << 31) if is_enum else 1, (1 << 31) - 1 if is_enum else NUMBER_MAX)
                parent.reserved_range.add(start=first, end=last if is_enum else last + 1)
            if not self._accept(","):
                break
        self._expect(";")

    def _extensions(self, message: Any) -> None:
        while True:
            first, last = self._range(1, NUMBER_MAX)
            message.extension_range.add(start=first, end=last + 1)
            if not self._accept(","):
                break
        if self._accept("["):
            self._bracket_options(descriptor_pb2.ExtensionRangeOptions(), None)
        self._expect(";")

    def _range(self, low: int, high: int) -> tuple[int, int]:
        first = last = self._integer(low, high)
        if self._accept("to"):
            last = high if self._accept("max") else self._integer(low, high)
        return first, last

    def _extend(self, extensions: Any, parent: Any = None) -> None:
        extendee = self._type_name()
        self._expect("{")
        if self._is_text("}"):
            raise self._error("extend needs a field")
        while not self._accept("}"):
            self._field(extensions.add(extendee=extendee), self._file if parent is None else parent)

    def _service(self, service: Any) -> None:
        service.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._accept("option"):
                self._option(service.options)
            elif self._accept("rpc"):
                method = service.method.add(name=self._name())
                method.client_streaming, method.input_type = self._rpc_type()
                self._expect("returns")
                method.server_streaming, method.output_type = self._rpc_type()
                if self._accept("{"):
                    while not self._accept("}"):
                        if self._accept("option"):
                            self._option(method.options)
                        else:
                            self._expect(";")
                else:
                    self._expect(";")
            else:
                self._expect(";")

    def _rpc_type(self) -> tuple[bool, str]:
        self._expect("(")
        is_stream = self._is_text("stream") and self._peek(1).text != ")"
        if is_stream:
            self._next()
        name = self._type_name()
        self._expect(")")
        return is_stream, name

    def _number(self, field: Any) -> None:
        self._expect("=")
        field.number = self._integer(1, NUMBER_MAX)
        if field.number in RESERVED:
            raise self._error(f"the numbers {RESERVED.start} to {RESERVED.stop - 1} are reserved for protobuf itself", back=1)

    def _field_options(self, field: Any) -> None:
        if self._accept("["):
            self._bracket_options(field.options, field)

    def _bracket_options(self, options: Any, owner: Any) -> None:
        while True:
            name = self._option_name()
            self._expect("=")
            if name in ("default", "json_name") and isinstance(owner, FIELD):
                if owner.HasField("default_value" if name == "default" else name):
                    raise self._error(f"{name} is given twice")
                if name == "default":
                    owner.default_value = self._default(owner)
                else:
                    owner.json_name = self._json_name()
            else:
                self._set_option(options, name)
            if self._accept("]"):
                return
            self._expect(",")

    def _option(self, options: Any) -> None:
        name = self._option_name()
        self._expect("=")
        self._set_option(options, name)
        self._expect(";")

    def _set_option(self, options: Any, name: str) -> None:
        first = name.partition(".")[0]
        if not name.startswith("("):
            if first not in options.DESCRIPTOR.fields_by_name or first == "uninterpreted_option":
                raise self._error(f"there is no option {name!r} here")
            if first == "features" and self._file.syntax != "editions":
                raise self._error("only files with an edition have features")
            if first == "map_entry":
                raise self._error("map_entry is not set in a file; declare a map")
            if first == "packed" and self._file.syntax == "editions":
                raise self._error("editions have no option packed; set features.repeated_field_encoding")
        set_option(options, name, self._value())

    def _default(self, field: Any) -> str:
        """The default of a field, as descriptors have it."""
        token, kind = self._peek(), field.type
        is_negative = token.text == "-" and token.kind == "symbol"
        if not field.HasField("type"):  # an enum, or a message, which the linker refuses
            if token.kind != "name":
                raise self._error(f"{token.text!r} is no value of an enum")
            return self._name()
        if kind in (FIELD.TYPE_STRING, FIELD.TYPE_BYTES):
            if token.kind != "string":
                raise self._error(f"the default of a text is in quotes, not {token.text}")
            return str(self._value())
        if kind == FIELD.TYPE_BOOL:
            if token.kind != "name" or token.text not in ("true", "false"):
                raise self._error(f"the default of a boolean is true or false, not {token.text}")
            return self._name()
        if kind in INTEGER_BOUNDS:
            return str(self._integer(*INTEGER_BOUNDS[kind]))
        number = self._peek(1) if is_negative else token
        if number.kind != "number" and (number.kind != "name" or number.text not in ("inf", "nan")):
            raise self._error(f"the default of a floating point number is no {number.text!r}")
        return str(self._value())

    def _json_name(self) -> str:
        if not self._is_kind("string"):
            raise self._error("json_name is a text in quotes")
        name = str(self._value())
        if "\0" in name or (name.startswith("[") and name.endswith("]")):
            raise self._error(f"{name!r} cannot be the name of a field in JSON", back=1)
        return name

    def _option_name(self) -> str:
        parts: list[str] = []
        while True:
            if self._accept("("):
                self.has_custom_options = True
                parts.append(f"({self._type_name()})")
                self._expect(")")
            else:
                parts.append(self._name())
            if not self._accept("."):
                return ".".join(parts)

    def _value(self) -> object:
        """The value of an option; None for a message, which only custom options have."""
        token = self._next()
        if token.kind == "string":
            text = self._unquoted(token)
            while self._is_kind("string"):
                text += self._unquoted(self._next())
            return text
        if token.text == "{":
            self._skip_braces()
            return None
        if token.text == "-":
            number = self._next()
            if number.kind != "number" and number.text not in ("inf", "nan"):
                raise self._error(f"{number.text!r} is no number", back=1)
            return "-" + number.text
        if token.kind not in ("name", "number"):
            raise self._error(f"{token.text!r} is no value of an option", back=1)
        return token.text

    def _skip_braces(self) -> None:
        depth = 1
        while depth:
            token = self._next()
            depth += {"{": 1, "}": -1}.get(token.text, 0)

    def _add_synthetic_oneofs(self, message: Any) -> None:
        """What proto3 marks optional is alone in a oneof, behind all that are written."""
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _type_name(self) -> str:
        return ("." if self._accept(".") else "") + self._dotted()

    def _dotted(self) -> str:
        name = self._name()
        while self._accept("."):
            name += "." + self._name()
        return name

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name":
            raise self._error(f"a name is missing before {token.text!r}", back=1)
        return token.text

    def _string(self) -> str:
        token = self._next()
        if token.kind != "string":
            raise self._error(f"a text in quotes is missing before {token.text!r}", back=1)
        return self._unquoted(token)

    def _integer(self, low: int, high: int) -> int:
        sign = -1 if self._accept("-") else 1
        token = self._next()
        try:
            is_octal = len(token.text) > 1 and token.text.isdigit() and token.text.startswith("0")
            number = sign * int(token.text, 8 if is_octal else 0)
        except ValueError:
            raise self._error(f"{token.text!r} is no whole number", back=1) from None
        if not low <= number <= high:
            raise self._error(f"{number} is not within {low}..{high}", back=1)
        return number

    def _peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self._at + ahead, len(self.tokens) - 1)]

    def _next(self) -> Token:
        token = self._peek()
        if token.kind == "end":
            raise self._error("the file ends too early")
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._peek().text != text or self._peek().kind == "string":
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(f"{text!r} is missing before {self._peek().text!r}")

    def _is_text(self, *texts: str) -> bool:
        return self._peek().text in texts

    def _is_kind(self, kind: str) -> bool:
        return self._peek().kind == kind

    def _error(self, message: str, back: int = 0) -> InvalidSchemaError:
        return InvalidSchemaError(f"line {self.tokens[max(self._at - back, 0)].line}: {message}")

    def _unquoted(self, token: Token) -> str:
        try:
            return unquoted(token.text)
        except ValueError:
            raise self._error(f"the text {token.text} has an escape that there is not", back=1) from None
