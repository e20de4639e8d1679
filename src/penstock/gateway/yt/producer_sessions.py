"""Producer sessions: epochs and sequence numbers, so that rows pushed twice are stored once.

A session is kept in the table of positions, under the name of its producer and session: the offset is its last sequence number,
the leader epoch its epoch, the metadata its user's. Rows pushed to one partition are written with the session as their source,
which the partition stores with them. So a crash between the rows and the table loses nothing: the higher sequence number counts.
Rows for several partitions, and those of a transaction, are committed together with the table.
"""

from __future__ import annotations

import json
import logging
from typing import Any, NamedTuple

from penstock.broker import Broker, Operation, PartitionUnavailableError, Position, TopicPartition, UnknownTopicError
from penstock.broker.buffered_transactions import Changes
from penstock.broker.consumers import METADATA_MAX, OBJECT_PREFIX
from penstock.broker.namespace import Kind, Node
from penstock.broker.registrations import Ref
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.encoded_rows import EncodedRows, row_count
from penstock.gateway.yt.errors import (
    GENERIC,
    INVALID_EPOCH,
    INVALID_SEQUENCE_NUMBERS,
    LOCK_CONFLICT,
    ZOMBIE_EPOCH,
    YtError,
)
from penstock.gateway.yt.permissions import check
from penstock.gateway.yt.schema import SEQUENCE_NUMBER
from penstock.gateway.yt.stored_values import from_stored, to_stored
from penstock.gateway.yt.visible_nodes import mounted_at, table_at
from penstock.queue import SourceWrite

log = logging.getLogger(__name__)

SESSIONS = f"{OBJECT_PREFIX}yt-session:"
SESSION_SIZE_MAX = 500
NO_SEQUENCE = -1


class Session(NamedTuple):
    """The state of a session."""

    epoch: int
    sequence: int
    meta: Any = None


class SessionKey(NamedTuple):
    """A producer's session for a queue."""

    producer: Node
    queue_node: Node
    queue: Ref
    session_id: str

    @property
    def name(self) -> str:
        """Its name in the table of positions."""
        return f"{_prefix(self.producer)}{self.session_id}"

    @property
    def place(self) -> TopicPartition:
        """Its queue in the table of positions."""
        assert self.queue_node.topic_id is not None
        return TopicPartition(self.queue_node.topic_id, 0)

    @property
    def source(self) -> bytes:
        """Its source id in partitions."""
        return _source(self.name)


async def recover_sessions(broker: Broker) -> None:
    """Update the table from the partitions, which may know of rows stored just before a crash."""
    for name in broker.consumers.consumers():
        if not name.startswith(SESSIONS):
            continue
        for place, position in broker.consumers.positions(name).items():
            try:
                topic = broker.catalog.topic_by_id(place.topic_id)
                states = [broker.partition(topic, number).source(_source(name)) for number in range(topic.partitions)]
            except (UnknownTopicError, PartitionUnavailableError) as error:
                log.info("session %r is not recovered: %s", name, error)
                continue
            last = max((state.max_seqno for state in states if state is not None), default=NO_SEQUENCE)
            if last > position.offset:
                await broker.consumers.commit(name, [(place, position._replace(offset=last))])


async def create_session(call: Call) -> Reply:
    """Create a session, or start its next epoch, which fences the writer before."""
    key = _key(call)
    broker = call.cluster.broker
    async with call.cluster.broker.commits.lock(key.name):
        call.cluster.broker.commits.check_settled(key.name, (key.place,))
        old = session_of(call, key)
        meta = call.get("user_meta")
        new = Session(0, NO_SEQUENCE, meta) if old is None else old._replace(epoch=old.epoch + 1)
        if meta is not None:
            new = new._replace(meta=meta)
        await broker.consumers.commit(key.name, [(key.place, _position(key, new))])
    return Reply({"epoch": new.epoch, "sequence_number": new.sequence, "user_meta": new.meta})


async def remove_session(call: Call) -> Reply:
    """Remove a session."""
    key = _key(call)
    async with call.cluster.broker.commits.lock(key.name):
        await call.cluster.broker.consumers.forget(key.name, [key.place])
    return Reply({})


async def push(call: Call) -> Reply:
    """Store the rows of a session that were not stored before."""
    from penstock.gateway.yt.table_commands import apply_changes, encode_by_partition, read_request_rows, writable_codec

    key = _key(call)
    call.cluster.check_mounted(key.queue_node, writes=True)
    codec = writable_codec(call, key.queue_node)
    rows = await read_request_rows(call)
    epoch = call.integer("epoch")
    transaction_id = call.transaction_id
    buffered = None if transaction_id is None else call.cluster.transactions.find(transaction_id).changes
    before = session_of(call, key, buffered)
    _check_epoch(key, before, epoch)
    assert before is not None
    numbers = _numbers(call, rows)
    new_rows = [(row, number) for row, number in zip(rows, numbers, strict=True) if number > before.sequence]
    meta = call.get("user_meta")
    after = Session(epoch, new_rows[-1][1] if new_rows else before.sequence, before.meta if meta is None else meta)
    by_queue = await encode_by_partition(call, key.queue_node, codec, [row for row, _ in new_rows])
    changes = Changes(dict(by_queue), {key.name: {key.place: _position(key, after)}})
    reply = Reply({"last_sequence_number": after.sequence, "skipped_row_count": len(rows) - len(new_rows)})
    if transaction_id is not None:
        seen = session_of(call, key)
        changes.checks.append(lambda: _check_unchanged(key, session_of(call, key), seen))
        await apply_changes(call, changes)
    elif len(by_queue) == 1:
        await _push_to_partition(call, key, changes, (before, after))
    elif new_rows or meta is not None:
        changes.checks.append(lambda: _check_unchanged(key, session_of(call, key), before))
        await call.cluster.transactions.carry_out(changes)
    return reply


async def _push_to_partition(
    call: Call, key: SessionKey, changes: Changes[EncodedRows], sessions: tuple[Session, Session]
) -> None:
    """Push rows to one partition with the session as their source; the table is updated after."""
    before, after = sessions
    commits = call.cluster.broker.commits
    async with commits.lock(key.name):
        commits.check_settled(key.name, (key.place,))
        _check_unchanged(key, session_of(call, key), before)
        queue, rows = next(iter(changes.writes.items()))
        source = SourceWrite(key.source, after.sequence - row_count(rows) + 1, after.epoch)
        if source.seqno >= 0:
            await call.cluster.rows.write_of_source(queue, rows, source)
            await call.cluster.broker.consumers.commit(key.name, changes.positions[key.name].items())
            return
    await call.cluster.transactions.carry_out(changes)


def session_of(call: Call, key: SessionKey, buffered: Changes[EncodedRows] | None = None) -> Session | None:
    """The state of a session: from the open transaction, the table, or the rows written last. Returns None if there is none."""
    position = None if buffered is None else buffered.position(key.name, key.place)
    if position is not None:
        return _session(position)
    position = call.cluster.broker.consumers.position(key.name, key.place)
    if position is None:
        return None
    session = _session(position)
    topic = call.cluster.broker.namespace.topic(key.queue_node)
    for number in range(topic.partitions):
        state = call.cluster.partition(key.queue_node, number).source(key.source)
        if state is not None and state.max_seqno > session.sequence:
            session = session._replace(sequence=state.max_seqno)
    return session


def session_rows(call: Call, producer: Node) -> list[dict[str, Any]]:
    """The rows of a producer's table, one for each session."""
    consumers = call.cluster.broker.consumers
    prefix = _prefix(producer)
    rows: list[dict[str, Any]] = []
    for name in consumers.consumers():
        if not name.startswith(prefix):
            continue
        for position in consumers.positions(name).values():
            fields = json.loads(position.metadata)
            rows.append(
                {
                    "queue_cluster": fields["cluster"],
                    "queue_path": fields["path"],
                    "session_id": name.removeprefix(prefix),
                    "sequence_number": position.offset,
                    "epoch": position.leader_epoch,
                    "user_meta": _session(position).meta,
                    "system_meta": None,
                }
            )
    return sorted(rows, key=lambda row: (row["queue_cluster"], row["queue_path"], row["session_id"]))


def _key(call: Call) -> SessionKey:
    producer = mounted_at(call, call.path("producer_path"), Kind.PRODUCER, writes=True)
    path = call.path("queue_path")
    node = table_at(call, path, Kind.QUEUE)
    check(call, Operation.READ, producer)
    check(call, Operation.WRITE, node)
    session_id = call.text("session_id")
    if not session_id or len(session_id.encode()) > SESSION_SIZE_MAX or "\0" in session_id:
        raise YtError(GENERIC, f"session_id must have 1 to {SESSION_SIZE_MAX} bytes, none of them zero")
    return SessionKey(producer, node, path.ref(call.cluster.name), session_id)


def _prefix(producer: Node) -> str:
    return f"{SESSIONS}{producer.id}:"


def _source(name: str) -> bytes:
    return b"y" + name.removeprefix(SESSIONS).encode()


def _position(key: SessionKey, session: Session) -> Position:
    fields = {"cluster": key.queue.cluster, "path": key.queue.path, "meta": json.loads(to_stored(session.meta))}
    text = json.dumps(fields)
    if len(text.encode()) > METADATA_MAX:
        raise YtError(GENERIC, f"user_meta is too long: with the path of the queue it takes more than {METADATA_MAX} bytes")
    return Position(session.sequence, session.epoch, text)


def _session(position: Position) -> Session:
    meta = json.loads(position.metadata)["meta"]
    return Session(position.leader_epoch, position.offset, from_stored(json.dumps(meta).encode()))


def _check_epoch(key: SessionKey, session: Session | None, epoch: int) -> None:
    if session is None:
        raise YtError(INVALID_EPOCH, f'Unknown queue producer session "{key.session_id}"; create it first')
    attributes = {"current_epoch": session.epoch, "received_epoch": epoch, "session_id": key.session_id}
    if epoch < session.epoch:
        raise YtError(ZOMBIE_EPOCH, f"Received epoch {epoch} is less than the current epoch {session.epoch}", attributes)
    if epoch > session.epoch:
        raise YtError(INVALID_EPOCH, f"Received epoch {epoch} is greater than the current epoch {session.epoch}", attributes)


def _check_unchanged(key: SessionKey, now: Session | None, before: Session | None) -> None:
    if now is None or before is None or now[:2] != before[:2]:
        raise YtError(LOCK_CONFLICT, f'Session "{key.session_id}" was changed by another writer meanwhile')


def _numbers(call: Call, rows: list[dict[str, Any]]) -> list[int]:
    """The sequence numbers of rows: each its own, or counted from the first."""
    first = call.integer("sequence_number", None)
    if first is not None:
        if any(SEQUENCE_NUMBER in row for row in rows):
            raise YtError(INVALID_SEQUENCE_NUMBERS, "sequence numbers are given with the request or with the rows, not both")
        return list(range(first, first + len(rows)))
    numbers: list[int] = []
    for row in rows:
        number = row.pop(SEQUENCE_NUMBER, None)
        if not isinstance(number, int) or number < 0:
            raise YtError(INVALID_SEQUENCE_NUMBERS, f"a row has no valid {SEQUENCE_NUMBER}; it must be a number from 0 on")
        if numbers and number <= numbers[-1]:
            raise YtError(INVALID_SEQUENCE_NUMBERS, f"sequence numbers must rise: {number} comes after {numbers[-1]}")
        numbers.append(int(number))
    return numbers


COMMANDS = {
    "create_queue_producer_session": Command(create_session, is_volatile=True),
    "remove_queue_producer_session": Command(remove_session, is_volatile=True),
    "push_queue_producer": Command(push, input_type="tabular", is_volatile=True, is_heavy=True, takes_transaction=True),
}
