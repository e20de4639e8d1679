"""Messages of Kafka's protocol with random values in their fields, drawn from their declarations."""

from __future__ import annotations

import string
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from penstock.kafka.protocol import ZERO_UUID, Message
from penstock.kafka.protocol.fields import Field

BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ERROR_CODES: Final = [int(code) for code in ErrorCode]


def random_message(message: type[Message], version: int, random: Random, items_max: int) -> Message:
    """A message as a version has it, with at most so many items in most of its arrays."""
    made = message()
    for field in message.fields:
        if version in field.versions and (field.tag is None or random.random() < 0.6):
            setattr(made, field.name, _value(field, version, random, items_max))
    return made


def _value(field: Field, version: int, random: Random, items_max: int) -> object:
    if field.is_nullable(version) and random.random() < 0.25:
        return None
    if field.kind == "struct":
        assert field.struct is not None
        made = random_message(field.struct, version, random, items_max)
        return None if field.tag is not None and made == field.struct() else made
    if field.kind == "array":
        count = random.randrange(items_max + 1) if random.random() < 0.95 else random.choice((8, 9, 130))
        if field.item is not None:
            return [_value(field.item, version, random, items_max) for _ in range(count)]
        assert field.struct is not None
        return [random_message(field.struct, version, random, min(items_max, 1)) for _ in range(min(count, 9))]
    return _primitive(field, random)


def _primitive(field: Field, random: Random) -> object:
    size = random.choice((0, 1, 5, 20, 20, 126, 127, 200, 20_000 if random.random() < 0.02 else 3))
    match field.kind:
        case "bool":
            return random.random() < 0.5
        case "string":
            return "".join(random.choices(string.printable + "äß水\U0001f6b0\0", k=min(size, 5_000)))
        case "bytes" | "records":
            return random.randbytes(size)
        case "uuid":
            return random.choice((ZERO_UUID, random.randbytes(16)))
        case "float64":
            return random.choice((0.0, -1.5, random.random()))
        case "uint16":
            return random.randrange(1 << 16)
    if "error_code" in field.name:
        return random.choice(ERROR_CODES)
    if field.kind == "int64" and field.name.endswith("_ms"):
        return random.choice((-1, 0, random.randrange(1 << 40)))
    top = 1 << (BITS[field.kind] - 1)
    return random.choice((0, -1, 1, top - 1, -top, random.randrange(-top, top)))
