"""Commands on dynamic tables: mounting, rows in, rows out, trimming."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from penstock.broker import Changes, Operation, TopicPartition
from penstock.broker.namespace import Kind, MountState, Node
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import GENERIC, NO_SUCH_TABLET, SCHEMA_VIOLATION, YtError
from penstock.gateway.yt.formats import read_rows
from penstock.gateway.yt.permissions import check
from penstock.gateway.yt.request import SMALL_BYTES, in_thread
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.schema import SYSTEM_COLUMNS, TABLET_INDEX, schema_of
from penstock.gateway.yt.select_command import select_rows
from penstock.gateway.yt.stored_values import to_stored
from penstock.gateway.yt.visible_nodes import mounted_at, node_at, table_at

ROWS_AT_ONCE = 2000  # encoded before others are served


async def mount_table(call: Call) -> Reply:
    """From now on a table takes reads, and writes unless it is frozen."""
    return await _set_state(call, MountState.FROZEN if call.flag("freeze") else MountState.MOUNTED)


async def unmount_table(call: Call) -> Reply:
    """From now on a table takes neither."""
    return await _set_state(call, MountState.UNMOUNTED)


async def freeze_table(call: Call) -> Reply:
    """From now on a table takes reads alone."""
    return await _set_state(call, MountState.FROZEN)


async def remount_table(call: Call) -> Reply:
    """Attributes take effect at once here: there is nothing to do."""
    node_at(call, call.path())
    return Reply({})


async def reshard_table(call: Call) -> Reply:
    """Give a queue more partitions; there are never fewer, so that offsets keep their meaning."""
    node = table_at(call, call.path(), Kind.QUEUE)
    check(call, Operation.ALTER, node)
    topic = call.cluster.broker.namespace.topic(node)
    wanted = call.whole("tablet_count")
    if wanted != topic.partitions:
        await call.cluster.broker.add_partitions(topic.name, wanted)
    return Reply({})


async def alter_table(call: Call) -> Reply:
    """Give a queue more columns; those it has stay as they are, since rows are stored by them."""
    node = table_at(call, call.path(), Kind.QUEUE)
    check(call, Operation.ALTER, node)
    writable_codec(call, node)
    if call.get("schema") is None:
        return Reply({})
    if node.mount_state is not MountState.UNMOUNTED:
        raise YtError(GENERIC, f"{node.path} is mounted; unmount it, change its schema and mount it again")
    old, new = call.cluster.schema(node), schema_of(call.get("schema"))
    kept = {column.name: column.type for column in new.columns}
    if new.keys or any(kept.get(column.name) != column.type for column in old.columns if column.name not in SYSTEM_COLUMNS):
        raise YtError(SCHEMA_VIOLATION, "a queue can get columns, but those it has stay with their types, and it is not sorted")
    names = {column.name for column in old.columns}
    if any(column.required for column in new.columns if column.name not in names):
        raise YtError(SCHEMA_VIOLATION, "a new column cannot be required: rows that are stored do not have it")
    await call.cluster.broker.namespace.set_attributes(node.path, {"schema": to_stored(call.get("schema"))})
    return Reply({})


async def insert_rows(call: Call) -> Reply:
    """Store rows of a queue, all or none of them."""
    node = mounted_at(call, call.path(), Kind.QUEUE, writes=True)
    check(call, Operation.WRITE, node)
    codec = writable_codec(call, node)
    rows = await sent_rows(call)
    if not rows:
        return Reply({})
    changes = Changes[EncodedRows]()
    for queue, part in (await spread(call, node, codec, rows)).items():
        changes.add(queue, part)
    await apply(call, changes)
    return Reply({})


async def trim_rows(call: Call) -> Reply:
    """Let go of all rows before an index; what is trimmed already stays so."""
    node = mounted_at(call, call.path(), Kind.QUEUE, writes=True)
    check(call, Operation.DELETE, node)
    partition = call.cluster.partition(node, call.whole("tablet_index"))
    count = call.whole("trimmed_row_count")
    if count < 0:
        raise YtError(GENERIC, f"trimmed_row_count is from 0 on, not {count}")
    if count > partition.end_offset:
        raise YtError(
            GENERIC,
            f"cannot trim {count} rows of tablet {partition.number}: it has rows up to {partition.end_offset}",
            {"trimmed_row_count": count, "upper_row_index": partition.end_offset},
        )
    await partition.trim(count)
    return Reply({})


async def get_tablet_infos(call: Call) -> Reply:
    """How many rows tablets have, and how many are trimmed."""
    node = table_at(call, call.path(), Kind.QUEUE)
    check(call, Operation.DESCRIBE, node)
    numbers = call.get("tablet_indexes") or []
    tablets: list[dict[str, Any]] = []
    for number in numbers:
        partition = call.cluster.partition(node, int(number))
        tablets.append(
            {
                "total_row_count": partition.stable_offset,
                "trimmed_row_count": partition.start_offset,
                "delayed_lockless_row_count": partition.end_offset - partition.stable_offset,
            }
        )
    return Reply({"tablets": tablets})


async def sent_rows(call: Call) -> list[dict[str, Any]]:
    """The rows in the body of a request; many are parsed in a thread, while others are served."""
    format_ = call.input_format()
    if len(call.body) <= SMALL_BYTES:
        return read_rows(format_, call.body)
    return await in_thread(partial(read_rows, format_, call.body))


def writable_codec(call: Call, node: Node) -> RowCodec:
    """What encodes rows of a queue; an error if it is a topic of Kafka's clients, who have no rows."""
    codec = call.cluster.codec(node)
    if codec is None:
        raise YtError(GENERIC, f"{node.path} was made by a Kafka client: write to it as one, or make a queue with a schema")
    return codec


async def spread(call: Call, node: Node, codec: RowCodec, rows: list[dict[str, Any]]) -> dict[TopicPartition, list[EncodedRows]]:
    """Rows by the partitions they say, or all others in one that is chosen at random."""
    topic = call.cluster.broker.namespace.topic(node)
    anywhere = call.cluster.random.randrange(topic.partitions)
    numbers = [row.pop(TABLET_INDEX, anywhere) for row in rows]
    are_whole = all(issubclass(kind, int) for kind in set(map(type, numbers)))
    tablets = sorted(set(numbers)) if are_whole else []
    if not are_whole or not all(0 <= number < topic.partitions for number in tablets):
        wrong = next(number for number in numbers if not isinstance(number, int) or not 0 <= number < topic.partitions)
        raise YtError(NO_SUCH_TABLET, f"Invalid tablet index {wrong!r}: {node.path} has 0..{topic.partitions - 1}")
    found: dict[TopicPartition, list[EncodedRows]] = {}
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[first : first + ROWS_AT_ONCE]
        encoded = codec.encode_all(part) if len(call.body) <= SMALL_BYTES else await in_thread(partial(codec.encode_all, part))
        if len(tablets) == 1:
            found.setdefault(TopicPartition(topic.id, int(tablets[0])), []).append(encoded)
            continue
        asked = np.array(numbers[first : first + ROWS_AT_ONCE], np.int64)
        for number in np.unique(asked).tolist():
            found.setdefault(TopicPartition(topic.id, number), []).append(encoded.chosen(np.flatnonzero(asked == number)))
    return found


async def apply(call: Call, changes: Changes[EncodedRows]) -> None:
    """Make changes now, or as part of the transaction that the call names."""
    transactions = call.cluster.transactions
    name = call.transaction_id
    if name is None:
        await transactions.carry_out(changes)
    else:
        transactions.gather(name, changes)


async def _set_state(call: Call, state: MountState) -> Reply:
    node = node_at(call, call.path())
    check(call, Operation.ALTER, node)
    await call.cluster.broker.namespace.set_mount_state(node.path, state)
    return Reply({})


COMMANDS = {
    "mount_table": Command(mount_table, is_volatile=True),
    "unmount_table": Command(unmount_table, is_volatile=True),
    "freeze_table": Command(freeze_table, is_volatile=True),
    "unfreeze_table": Command(mount_table, is_volatile=True),
    "remount_table": Command(remount_table, is_volatile=True),
    "reshard_table": Command(reshard_table, is_volatile=True),
    "alter_table": Command(alter_table, is_volatile=True),
    "insert_rows": Command(
        insert_rows, input_type="tabular", output_type=None, is_volatile=True, is_heavy=True, takes_transaction=True
    ),
    "select_rows": Command(select_rows, output_type="tabular", is_heavy=True),
    "trim_rows": Command(trim_rows, is_volatile=True),
    "get_tablet_infos": Command(get_tablet_infos, is_volatile=True),
}
