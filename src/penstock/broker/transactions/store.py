"""Storage of transactional ids, and of the application records that are committed with transactions.

"t" | transactional id           the state of a transactional id
"r" | key                        an application's record: the bytes it gave

state of a transactional id:
0        1      2         3            11     13                21                29          31
+--------+------+---------+------------+------+-----------------+-----------------+-----------+---
|version |state |protocol |producer id |epoch |last producer id |next producer id |last epoch |
+--------+------+---------+------------+------+-----------------+-----------------+-----------+---
timeout ms 4 | started ms 8 | updated ms 8 | partitions 4 | groups 4
for each partition:  topic id 16 | partition 4
for each group:      length 2 | name
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from uuid import UUID

from penstock.broker.consumers import TopicPartition
from penstock.broker.transactions.transaction import State, Transaction
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.tablet import Command, DeleteRange, KvTablet, Request, Write

VERSION = 1
ID_SIZE_MAX = 1000
RECORD_SIZE_MAX = 64 << 10

# The place of a state in this list is its stored form.
STATES = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
    State.DEAD,
)

_FIXED = Struct(">BBBqhqqhIqqII")
_QUEUE = Struct(">16sI")
_LENGTH = Struct(">H")


def pack(transaction: Transaction) -> bytes:
    """The stored form, without the id, which is the key."""
    own = transaction
    fixed = _FIXED.pack(
        VERSION,
        STATES.index(own.state),
        own.version,
        own.producer_id,
        own.epoch,
        own.last_producer_id,
        own.next_producer_id,
        own.last_epoch,
        own.timeout_ms,
        own.started_ms,
        own.updated_ms,
        len(own.queues),
        len(own.groups),
    )
    queues = (_QUEUE.pack(queue.topic_id.bytes, queue.partition) for queue in sorted(own.queues))
    names = (name.encode() for name in sorted(own.groups))
    groups = (_LENGTH.pack(len(name)) + name for name in names)
    return b"".join((fixed, *queues, *groups))


def unpack(transactional_id: str, raw: bytes) -> Transaction:
    """The transactional id whose stored form is `raw`."""
    if raw[0] > VERSION:
        raise ConfigError(f"transactional id {transactional_id!r} has format {raw[0]}; upgrade Penstock")
    _, state, version, producer, epoch, last_producer, next_producer, last_epoch, timeout, started, updated, queues, groups = (
        _FIXED.unpack_from(raw)
    )
    at = _FIXED.size
    found_queues: list[TopicPartition] = []
    for _ in range(queues):
        topic_id, partition = _QUEUE.unpack_from(raw, at)
        found_queues.append(TopicPartition(UUID(bytes=topic_id), partition))
        at += _QUEUE.size
    found_groups: list[str] = []
    for _ in range(groups):
        end = at + _LENGTH.size + _LENGTH.unpack_from(raw, at)[0]
        found_groups.append(raw[at + _LENGTH.size : end].decode())
        at = end
    return Transaction(
        transactional_id,
        producer,
        epoch,
        last_producer,
        last_epoch,
        next_producer,
        timeout,
        STATES[state],
        version,
        frozenset(found_queues),
        frozenset(found_groups),
        started,
        updated,
    )


class TransactionStore:
    """The tablet of transactional ids and application records."""

    def __init__(self, tablet: KvTablet) -> None:
        self._tablet = tablet

    @property
    def epoch(self) -> int:
        """The epoch of the coordinator: the generation of the tablet."""
        return self._tablet.generation

    async def confirm(self) -> None:
        """Wait for a confirmation, begun after this call, that no other node has taken the tablet over. FencedError if one has,
        UnconfirmedError if that is not known in time."""
        await self._tablet.confirm_now()

    def load(self) -> Iterator[Transaction]:
        """Load all transactional ids."""
        for key in self._tablet.keys(b"t", b"u"):
            yield unpack(key[1:].decode(), self._tablet.head(key) or b"")

    async def put(
        self, transactions: Iterable[Transaction], *, record: tuple[str, bytes] | None = None, makes_room: bool = False
    ) -> None:
        """Store states, and optionally a record, atomically and durably. An empty record value deletes the record."""
        commands: list[Command] = [
            Write(_id_key(transaction.transactional_id), b"", head=pack(transaction)) for transaction in transactions
        ]
        if record is not None:
            key, value = record
            if len(value) > RECORD_SIZE_MAX:
                raise InvalidRequestError(f"an application record has at most {RECORD_SIZE_MAX} bytes, not {len(value)}")
            name = _record_key(key)
            commands.append(Write(name, b"", head=value) if value else DeleteRange(name, name + b"\0"))
        await self._tablet.execute(Request(tuple(commands), makes_room=makes_room))

    async def forget(self, transactional_ids: Iterable[str]) -> None:
        """Delete transactional ids."""
        keys = [_id_key(transactional_id) for transactional_id in transactional_ids]
        await self._tablet.execute(Request(tuple(DeleteRange(key, key + b"\0") for key in keys), makes_room=True))

    def record(self, key: str) -> bytes | None:
        """An application's record."""
        return self._tablet.head(_record_key(key))


def check_id(transactional_id: str) -> None:
    """Raise InvalidRequestError if the transactional id is invalid."""
    _id_key(transactional_id)


def _id_key(transactional_id: str) -> bytes:
    return b"t" + _checked("a transactional id", transactional_id)


def _record_key(key: str) -> bytes:
    return b"r" + _checked("the key of an application record", key)


def _checked(what: str, name: str) -> bytes:
    raw = name.encode()
    if not 1 <= len(raw) <= ID_SIZE_MAX:
        raise InvalidRequestError(f"{what} has 1 to {ID_SIZE_MAX} bytes, not {len(raw)}")
    return raw
