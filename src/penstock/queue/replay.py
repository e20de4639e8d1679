"""Appends of the log, replayed at boot: into the partition they belong to, or into keys where that cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import CorruptionError
from penstock.queue import keys
from penstock.queue.append_note import unpack_note
from penstock.queue.batch import Batch, split_batches, stored_batch
from penstock.queue.keys import HEAD, DataKey, Description
from penstock.queue.partition_append import PartitionAppend
from penstock.queue.piece import Piece
from penstock.queue.sources import SourceState, SourceWrite, after_write, producer_source
from penstock.queue.transactions import Transactions
from penstock.tablet import Append, Chain, Change, Command, DeleteRange, KeyIndex, Place, Write

if TYPE_CHECKING:
    from penstock.queue.partition import Partition

Appends = Sequence[tuple[Place, Append]]


class UnkeyedAppend(NamedTuple):
    """An append of the log that there are no keys of: its place, where it begins, the sources that its batches do not name
    themselves, and its bytes."""

    place: Place
    first_offset: int
    named: dict[int, SourceWrite | None]
    data: bytes


def unkeyed_appends(appends: Appends, keyed_to: int) -> list[UnkeyedAppend]:
    """The appends from an offset on, in order."""
    noted = (UnkeyedAppend(place, *unpack_note(append.note), append.data) for place, append in appends)
    return [append for append in noted if append.first_offset >= keyed_to]


def replay_appends(partition: Partition, appends: Sequence[UnkeyedAppend]) -> None:
    """Apply appends to a partition, in order. CorruptionError if one is missing."""
    for (generation, step), first_offset, named, data in appends:
        if first_offset != partition.end_offset:
            raise CorruptionError(
                f"log entry {generation}:{step} appends to partition {partition.number} at offset {first_offset}, but it ends at "
                f"{partition.end_offset}"
            )
        added = PartitionAppend(first_offset, generation)
        for batch, source in _batches(data, named):
            if batch.is_transactional:
                added.note_transaction(partition.number, batch, partition.transactions)
            state = None if source is None else added.sources.get(source.source) or partition.source(source.source)
            added.add(batch, source, state)
        partition.apply(added)


def appends_as_keys(index: KeyIndex, appends: Appends) -> list[Change]:
    """The same as keys, whatever is missing between them: for a partition that is damaged, so that its log can go, and for one
    of which something is lost for good."""
    changes: list[Change] = []
    for number in dict.fromkeys(append.queue for _, append in appends):
        raw = index.get(keys.prefix(b"l", number))
        keyed_to = keys.unpack_offset(raw) if isinstance(raw, bytes) else 0
        kept = unkeyed_appends([item for item in appends if item[1].queue == number], keyed_to)
        if kept:
            changes += _as_keys(index, number, kept)
    return changes


def write_commands(changes: Sequence[Change]) -> tuple[Command, ...]:
    """Commands that make such keys."""
    commands: list[Command] = []
    for key, value in changes:
        if value is None:
            commands.append(DeleteRange(key, key + b"\0"))
        elif isinstance(value, Chain):
            commands.append(Write(key, tuple(piece for piece in value.pieces if isinstance(piece, bytes)), value.head))
        else:
            commands.append(Write(key, value))
    return tuple(commands)


def _as_keys(index: KeyIndex, number: int, appends: Sequence[UnkeyedAppend]) -> list[Change]:
    changes: dict[bytes, bytes | Chain | None] = {}
    transactions = Transactions()
    own = keys.prefix(b"t", number)
    for key in index.keys(own, keys.past(own)):
        transactions.open[keys.producer_of(key)] = keys.unpack_offset(_small(index, key) or b"")
    sources: dict[bytes, SourceState] = {}
    prefix = keys.prefix(b"s", number)
    end = 0
    for _, first_offset, named, data in appends:
        end = first_offset
        for batch, source in _batches(data, named):
            for key, value in transactions.note(number, batch, end):
                changes[key] = value
            if source is not None:
                state = sources.get(source.source)
                if state is None and (raw := _small(index, prefix + source.source)) is not None:
                    state = SourceState.unpack(raw)
                sources[source.source] = after_write(state, source, batch.messages, end)
            end += batch.messages
        piece = Piece.parse(data, first_offset, end - first_offset)
        description = Description(piece.size, 0, piece.min_timestamp, piece.max_timestamp)
        changes[DataKey(number, first_offset, end - first_offset, HEAD).pack()] = Chain(description.pack(), (data,))
    for name, state in sources.items():
        changes[prefix + name] = state.pack()
    changes[keys.prefix(b"l", number)] = keys.pack_offset(end)
    return list(changes.items())


def _batches(data: bytes, named: dict[int, SourceWrite | None]) -> Iterator[tuple[Batch, SourceWrite | None]]:
    """The batches of a record, each with its source."""
    for number, raw in enumerate(split_batches(data)):
        batch = stored_batch(raw)
        yield batch, named[number] if number in named else producer_source(batch)


def _small(index: KeyIndex, key: bytes) -> bytes | None:
    value = index.get(key)
    return value.head if isinstance(value, Chain) else value
