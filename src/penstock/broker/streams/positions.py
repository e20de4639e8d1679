"""Durable consumers: how far each has acknowledged a subject. By sequence, which outlives the messages themselves.

"c" | durable name | 0 | subject     version 1 | last sequence 8
"k" | durable name | 0 | subject     version 1 | seconds to acknowledge in 8 (float) | tries 4 | dead-letter subject
"a" | durable name | 0 | subject | 0 | sequence 8      acknowledged by itself, beyond the last sequence
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final, NamedTuple

from penstock.broker.streams.subject_patterns import consumes, is_pattern
from penstock.broker.system_tablet import TableTablet
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.core.format_version import check_version
from penstock.tablet import Command, DeleteRange, Request, Write

VERSION: Final = 1
NAME_SIZE_MAX: Final = 990  # as a group it has a prefix, and a group has at most 1000
MOVES_AT_ONCE: Final = 2000

_POSITION = Struct(">BQ")
_RULE = Struct(">BdI")


class ConsumerPosition(NamedTuple):
    """The seed's tuple: the consumer, the subject, and the last acknowledged sequence."""

    durable_name: str
    subject: str
    last_sequence: int


class DeliveryRule(NamedTuple):
    """How messages of a subject are delivered to the members of a durable consumer, each to one of them. A message that is not
    acknowledged within `ack_wait_s` is redelivered, up to `tries_max` times (0: without limit), then sent to `dead_letter` if
    that is set."""

    ack_wait_s: float
    tries_max: int = 0
    dead_letter: str = ""


_Own = tuple[str, str]  # a durable name and a subject


class _Move(NamedTuple):
    own: _Own
    key: bytes
    target: int
    rewind: bool
    done: asyncio.Future[None]


class Positions:
    """The table of durable consumers. Positions move on, and back only when that is asked for."""

    def __init__(self, tablet: TableTablet) -> None:
        self._tablet = tablet
        self._stored: dict[_Own, int] = {}
        self._staged: dict[_Own, int] = {}
        self._by_subject: dict[str, set[str]] = {}  # the durable names that have a position there
        self._patterns: set[str] = set()  # those of them that are patterns
        self._rules: dict[_Own, DeliveryRule] = {}
        self._moves: list[_Move] = []  # in order: of several of one consumer, the last one counts
        self._mover: asyncio.Task[None] | None = None
        self._load(tablet)

    async def reload(self, tablet: TableTablet) -> None:
        """The tablet was started again: what failed may have been done."""
        self._load(tablet)

    def position(self, durable_name: str, subject: str) -> int:
        """The last sequence a consumer has acknowledged; 0 if none."""
        return self._stored.get((durable_name, subject), 0)

    def of_subject(self, subject: str) -> list[ConsumerPosition]:
        """Every consumer of a subject, by name: also those of a pattern that stands for it. Of a pattern, also those of the
        subjects that it stands for."""
        wanted = self._by_subject if is_pattern(subject) else {subject, *self._patterns}
        keys = [(name, own) for own in wanted if consumes(own, subject) for name in self._by_subject.get(own, ())]
        return [ConsumerPosition(*own, self._stored[own]) for own in sorted(keys)]

    def all(self) -> list[ConsumerPosition]:
        """Every consumer of every subject."""
        return [ConsumerPosition(*own, sequence) for own, sequence in sorted(self._stored.items())]

    def of_patterns(self) -> list[ConsumerPosition]:
        """Every consumer of every pattern."""
        keys = [(name, pattern) for pattern in sorted(self._patterns) for name in sorted(self._by_subject.get(pattern, ()))]
        return [ConsumerPosition(*own, self._stored[own]) for own in keys]

    def has(self, durable_name: str, subject: str) -> bool:
        """Whether a consumer has a position of this subject, not by a pattern."""
        return (durable_name, subject) in self._stored

    @property
    def count(self) -> int:
        """How many positions there are."""
        return len(self._stored)

    def rule(self, durable_name: str, subject: str) -> DeliveryRule | None:
        """How messages are handed to the members of a durable name; None if each of them is shown all."""
        return self._rules.get((durable_name, subject))

    def acknowledged_beyond(self, durable_name: str, subject: str) -> list[int]:
        """Sequences that were acknowledged by themselves, beyond the position."""
        begin = _key(b"a", (durable_name, subject)) + b"\0"
        return [int.from_bytes(key[len(begin) :], "big") for key in self._tablet.keys(begin, begin[:-1] + b"\1")]

    async def move(self, durable_name: str, subject: str, sequence: int, *, rewind: bool = False) -> int:
        """Set a position, durably; where it is then. It does not move back unless asked to `rewind`."""
        own = (durable_name, subject)
        key = _key(b"c", own)
        stored = self._stored.get(own)
        if not rewind and stored is not None and sequence <= stored and own not in self._staged:
            return stored
        target = sequence if rewind else max(sequence, self._staged.get(own, stored or 0))
        self._staged[own] = target
        move = _Move(own, key, target, rewind, asyncio.get_running_loop().create_future())
        self._moves.append(move)
        if self._mover is None:
            self._mover = asyncio.create_task(self._store_moves(), name="stream-positions")
        await move.done
        return target

    async def _store_moves(self) -> None:
        """Store all positions that wait, with one request; those that come meanwhile go with the next."""
        try:
            while self._moves:
                moves, self._moves = self._moves[:MOVES_AT_ONCE], self._moves[MOVES_AT_ONCE:]
                try:
                    await self._tablet.execute(Request(_move_commands(moves), makes_room=True))
                except PenstockError as error:
                    # What waits behind them stays staged: else something lower could come to be stored after it.
                    self._staged = {move.own: move.target for move in self._moves}
                    for move in moves:
                        if not move.done.done():
                            move.done.set_exception(error)
                    continue
                for move in moves:
                    if self._staged.get(move.own) == move.target:
                        del self._staged[move.own]
                    self._take(move.own, move.target)
                    if not move.done.done():
                        move.done.set_result(None)
        finally:
            self._mover = None

    async def acknowledge_beyond(
        self, durable_name: str, subject: str, position: int, beyond: list[int], done: list[int]
    ) -> None:
        """Store acknowledgements of single messages: the position up to which all are, those beyond it, and those it has
        reached, which need no note any more."""
        own = (durable_name, subject)
        notes = _key(b"a", own) + b"\0"
        commands: list[Command] = [Write(notes + sequence.to_bytes(8, "big"), b"\1") for sequence in beyond]
        for sequence in done:
            key = notes + sequence.to_bytes(8, "big")
            commands.append(DeleteRange(key, key + b"\0"))
        if position > self.position(*own):
            commands.append(Write(_key(b"c", own), _POSITION.pack(VERSION, position)))
        if commands:
            await self._tablet.execute(Request(tuple(commands), makes_room=True))
            self._take(own, max(position, self.position(*own)))

    async def set_rule(self, durable_name: str, subject: str, rule: DeliveryRule | None) -> None:
        """Change how messages are handed to the members of a durable name."""
        own = (durable_name, subject)
        key = _key(b"k", own)
        if rule is None:
            await self._tablet.execute(Request((DeleteRange(key, key + b"\0"),), makes_room=True))
            self._rules.pop(own, None)
            return
        raw = _RULE.pack(VERSION, rule.ack_wait_s, rule.tries_max) + rule.dead_letter.encode()
        await self._tablet.execute(Request((Write(key, raw),)))
        self._rules[own] = rule

    async def forget(self, durable_name: str, subject: str) -> None:
        """A consumer is no more."""
        own = (durable_name, subject)
        beyond = _key(b"a", own) + b"\0"
        commands: list[Command] = [DeleteRange(beyond, beyond[:-1] + b"\1")]
        for kind in (b"c", b"k"):
            commands.append(DeleteRange(_key(kind, own), _key(kind, own) + b"\0"))
        await self._tablet.execute(Request(tuple(commands), makes_room=True))
        self._stored.pop(own, None)
        self._rules.pop(own, None)
        self._by_subject.get(subject, set()).discard(durable_name)

    def _load(self, tablet: TableTablet) -> None:
        self._stored.clear()
        self._staged.clear()
        self._by_subject.clear()
        self._patterns.clear()
        self._rules.clear()
        for key in tablet.keys(b"c", b"d"):
            raw = tablet.head(key) or b""
            check_version(raw[0] if raw else 0, VERSION, "the position of a durable consumer")
            self._take(_own(key), _POSITION.unpack(raw)[1])
        for key in tablet.keys(b"k", b"l"):
            raw = tablet.head(key) or b""
            check_version(raw[0] if raw else 0, VERSION, "the rule of a durable consumer")
            _, ack_wait_s, tries_max = _RULE.unpack_from(raw)
            self._rules[_own(key)] = DeliveryRule(ack_wait_s, tries_max, raw[_RULE.size :].decode())

    def _take(self, own: _Own, sequence: int) -> None:
        if own not in self._stored:
            durable_name, subject = own
            self._by_subject.setdefault(subject, set()).add(durable_name)
            if is_pattern(subject):
                self._patterns.add(subject)
        self._stored[own] = sequence


def _move_commands(moves: list[_Move]) -> tuple[Command, ...]:
    commands: list[Command] = [Write(move.key, _POSITION.pack(VERSION, move.target)) for move in moves]
    for move in moves:
        if move.rewind:  # what was acknowledged by itself beyond the position is to be seen again
            beyond = _key(b"a", move.own) + b"\0"
            commands.append(DeleteRange(beyond, beyond[:-1] + b"\1"))
    return tuple(commands)


def _key(kind: bytes, own: _Own) -> bytes:
    name, subject = own[0].encode(), own[1].encode()
    if not name or len(name) > NAME_SIZE_MAX or b"\0" in name:
        raise InvalidRequestError(f"a durable name has 1 to {NAME_SIZE_MAX} bytes, none of them zero")
    return kind + name + b"\0" + subject


def _own(key: bytes) -> _Own:
    name, _, subject = key[1:].partition(b"\0")
    return name.decode(), subject.decode()
