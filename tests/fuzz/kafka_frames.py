"""Requests of Kafka's protocol, right, nearly right and not at all: every api in every version, with batches that are damaged."""

from __future__ import annotations

from random import Random
from typing import Final

from penstock.core.record_format import framed, packed_record
from penstock.kafka.protocol import APIS, PRIVATE_APIS, Api, Message, encode_request, keys
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import fetch_request, produce_request
from tests.fuzz.input import Input, damaged, ending
from tests.fuzz.kafka_messages import random_message

TOPIC: Final = "fuzzed"
TOPIC_FIELDS: Final = frozenset({"name", "topic", "topic_name"})
HEADS: Final = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\x06\x40\0\0", b"GET ", b"\x16\x03\1\2")


def kafka_input(random: Random) -> Input:
    """What one connection sends: a few requests in a row, the last of them perhaps cut, or something else altogether."""
    match random.randrange(8):
        case 0:
            return Input(random.choice(HEADS) + random.randbytes(random.choice((0, 3, 100, 5000))), ending(random))
        case 1:
            whole = _frame(random)
            return Input(whole[: random.randrange(len(whole))], ending(random))
        case 2:
            return Input(damaged(_frame(random), random), ending(random))
        case 3:
            return Input(b"".join(_sized(damaged(_frame(random)[4:], random)) for _ in range(3)), ending(random))
    return Input(b"".join(_frame(random) for _ in range(random.choice((1, 2, 5)))), ending(random))


def _sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _frame(random: Random) -> bytes:
    api = random.choice([*APIS.values(), *PRIVATE_APIS.values()])
    version = random.randint(api.min_version, api.max_version)
    if random.random() < 0.3:
        api, version, message = _data_request(random)
    else:
        message = random_message(api.request_class, version, random, random.choice((0, 1, 2)))
        _aim(message, random)
    buffers, _ = encode_request(api.key, version, random.randrange(1 << 31), random.choice(("", "fuzz", "penstock")), message)
    return b"".join(bytes(buffer) for buffer in buffers)


def _data_request(random: Random) -> tuple[Api, int, Message]:
    if random.random() < 0.3:
        return (
            APIS[keys.FETCH],
            11,
            fetch_request(TOPIC, random.choice((0, -1, 1, 1 << 40)), max_bytes=random.choice((0, 1, 1 << 20))),
        )
    batch = _batch(random)
    return APIS[keys.PRODUCE], random.choice((3, 7, 9, 12)), produce_request(TOPIC, batch, 0, random.choice((-1, 0, 1)))


def _batch(random: Random) -> bytes:
    """A batch whose checksum is right, whatever is in it."""
    attributes = random.choice((0, 0, 0, 1, 2, 3, 4, 7, 8, 0x10, 0x20, 0x30, 0x100, 0x7FFF))
    count = random.choice((0, 1, 1, 3, 1 << 20))
    times = random.choice(((0, 0), (-1, -1), ((1 << 63) - 1, (1 << 63) - 1), (-(1 << 63), 5)))
    if random.random() < 0.3:
        return damaged(make_batch([random.randbytes(20)] * 3, attributes=attributes), random)
    headers = [
        (random.randbytes(random.choice((0, 5))), random.choice((None, b"", b"x" * 300))) for _ in range(random.randrange(3))
    ]
    records = b"".join(
        packed_record(at, random.choice((None, b"", b"{}", random.randbytes(30))), headers=headers) for at in range(3)
    )
    return framed(damaged(records, random) if random.random() < 0.5 else records, count, times, attributes=attributes)


def _aim(message: Message, random: Random) -> None:
    """Let some names be those of a topic that is there."""
    for field in message.fields:
        value = getattr(message, field.name)
        if field.name in TOPIC_FIELDS and isinstance(value, str) and random.random() < 0.5:
            setattr(message, field.name, TOPIC)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, Message):
                _aim(one, random)
