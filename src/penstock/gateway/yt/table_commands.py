"""Commands on dynamic tables: mount, insert, select, trim."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from penstock.broker import Operation, TopicPartition
from penstock.broker.buffered_transactions import Changes
from penstock.broker.namespace import Kind, MountState, Node
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import GENERIC, NO_SUCH_TABLET, SCHEMA_VIOLATION, YtError
from penstock.gateway.yt.formats import read_rows
from penstock.gateway.yt.permissions import check
from penstock.gateway.yt.request import SMALL_BYTES, in_thread
from penstock.gateway.yt.row_codec import RowCodec
from penstock.gateway.yt.schema import SYSTEM_COLUMNS, TABLET_INDEX, parse_schema
from penstock.gateway.yt.select_command import select_rows
from penstock.gateway.yt.stored_values import to_stored
from penstock.gateway.yt.visible_nodes import mounted_at, node_at, table_at

ROWS_AT_ONCE = 2000  # encoded between two turns of the event loop


async def mount_table(call: Call) -> Reply:
    """Mount a table for reads, and unless it is frozen for writes."""
    return await _set_state(call, MountState.FROZEN if call.flag("freeze") else MountState.MOUNTED)


async def unmount_table(call: Call) -> Reply:
    """Unmount a table: it takes neither reads nor writes."""
    return await _set_state(call, MountState.UNMOUNTED)


async def freeze_table(call: Call) -> Reply:
    """Freeze a table: it takes only reads."""
    return await _set_state(call, MountState.FROZEN)


async def remount_table(call: Call) -> Reply:
    """Do nothing: attributes take effect without a remount."""
    node_at(call, call.path())
    return Reply({})


async def reshard_table(call: Call) -> Reply:
    """Add partitions to a queue. They are never removed, so that offsets keep their meaning."""
    node = table_at(call, call.path(), Kind.QUEUE)
    check(call, Operation.ALTER, node)
    topic = call.cluster.broker.namespace.topic(node)
    wanted = call.integer("tablet_count")
    if wanted != topic.partitions:
        await call.cluster.broker.add_partitions(topic.name, wanted)
    return Reply({})


async def alter_table(call: Call) -> Reply:
    """Add columns to a queue. Existing columns keep their types, as stored rows depend on them."""
    node = table_at(call, call.path(), Kind.QUEUE)
    check(call, Operation.ALTER, node)
    writable_codec(call, node)
    if call.get("schema") is None:
        return Reply({})
    if node.mount_state is not MountState.UNMOUNTED:
        raise YtError(GENERIC, f"{node.path} is mounted; unmount it, change its schema and mount it again")
    old, new = call.cluster.schema(node), parse_schema(call.get("schema"))
    kept = {column.name: column.type for column in new.columns}
    if new.keys or any(kept.get(column.name) != column.type for column in old.columns if column.name not in SYSTEM_COLUMNS):
        raise YtError(
            SCHEMA_VIOLATION, "columns can be added to a queue; existing ones keep their types, and a queue is not sorted"
        )
    names = {column.name for column in old.columns}
    if any(column.required for column in new.columns if column.name not in names):
        raise YtError(SCHEMA_VIOLATION, "a new column cannot be required: stored rows do not have it")
    await call.cluster.broker.namespace.set_attributes(node.path, {"schema": to_stored(call.get("schema"))})
    return Reply({})


async def insert_rows(call: Call) -> Reply:
    """Store rows in a queue, all or none."""
    node = mounted_at(call, call.path(), Kind.QUEUE, writes=True)
    check(call, Operation.WRITE, node)
    codec = writable_codec(call, node)
    rows = await read_request_rows(call)
    if not rows:
        return Reply({})
    changes = Changes[EncodedRows]()
    for queue, part in (await encode_by_partition(call, node, codec, rows)).items():
        changes.add(queue, part)
    await apply_changes(call, changes)
    return Reply({})


async def trim_rows(call: Call) -> Reply:
    """Delete all rows before an index."""
    node = mounted_at(call, call.path(), Kind.QUEUE, writes=True)
    check(call, Operation.DELETE, node)
    partition = call.cluster.partition(node, call.integer("tablet_index"))
    count = call.integer("trimmed_row_count")
    if count < 0:
        raise YtError(GENERIC, f"trimmed_row_count must be from 0 on, not {count}")
    if count > partition.end_offset:
        raise YtError(
            GENERIC,
            f"cannot trim {count} rows of tablet {partition.number}: it has rows up to {partition.end_offset}",
            {"trimmed_row_count": count, "upper_row_index": partition.end_offset},
        )
    await partition.trim(count)
    return Reply({})


async def get_tablet_infos(call: Call) -> Reply:
    """Return how many rows tablets have, and how many are trimmed."""
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


async def read_request_rows(call: Call) -> list[dict[str, Any]]:
    """Parse the rows in the body of a request; a large body in a thread."""
    format_ = call.input_format()
    if len(call.body) <= SMALL_BYTES:
        return read_rows(format_, call.body)
    return await in_thread(partial(read_rows, format_, call.body))


def writable_codec(call: Call, node: Node) -> RowCodec:
    """The codec of a queue's rows. YtError for a topic of Kafka's clients, which has no rows."""
    codec = call.cluster.codec(node)
    if codec is None:
        raise YtError(
            GENERIC, f"{node.path} was created by a Kafka client: write to it by Kafka, or create a queue with a schema"
        )
    return codec


async def encode_by_partition(
    call: Call, node: Node, codec: RowCodec, rows: list[dict[str, Any]]
) -> dict[TopicPartition, list[EncodedRows]]:
    """Encode rows by partition: the one that a row names, or one random partition for all others."""
    topic = call.cluster.broker.namespace.topic(node)
    random_partition = call.cluster.random.randrange(topic.partitions)
    numbers = [row.pop(TABLET_INDEX, random_partition) for row in rows]
    are_integers = all(issubclass(kind, int) for kind in set(map(type, numbers)))
    tablets = sorted(set(numbers)) if are_integers else []
    if not are_integers or not all(0 <= number < topic.partitions for number in tablets):
        invalid = next(number for number in numbers if not isinstance(number, int) or not 0 <= number < topic.partitions)
        raise YtError(NO_SUCH_TABLET, f"Invalid tablet index {invalid!r}: {node.path} has 0..{topic.partitions - 1}")
    by_partition: dict[TopicPartition, list[EncodedRows]] = {}
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[first : first + ROWS_AT_ONCE]
        encoded = codec.encode_all(part) if len(call.body) <= SMALL_BYTES else await in_thread(partial(codec.encode_all, part))
        if len(tablets) == 1:
            by_partition.setdefault(TopicPartition(topic.id, int(tablets[0])), []).append(encoded)
            continue
        indexes = np.array(numbers[first : first + ROWS_AT_ONCE], np.int64)
        for number in np.unique(indexes).tolist():
            by_partition.setdefault(TopicPartition(topic.id, number), []).append(
                encoded.select(np.flatnonzero(indexes == number))
            )
    subjects = call.cluster.subjects
    if subjects is not None and topic.config.schema_rule is not None:
        return {queue: await subjects.framed(topic, codec.schema, parts) for queue, parts in by_partition.items()}
    return by_partition


async def apply_changes(call: Call, changes: Changes[EncodedRows]) -> None:
    """Commit changes now, or add them to the transaction that the call names."""
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
