"""Commands on transactions, and a few about the cluster."""

from __future__ import annotations

from typing import Any

from penstock.broker.buffered_transactions import BufferedTransactions, TransactionLimitError
from penstock.broker.namespace import object_id
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.paths import parse_path
from penstock.gateway.yt.read_locks import MasterTransactions, is_master

TRANSACTION_TYPE = 5
TIMEOUT_DEFAULT_MS = 30_000


async def start_transaction(call: Call) -> Reply:
    """Start a transaction. It expires unless it is pinged or used. A master transaction is for readers and changes nothing."""
    timeout_ms = call.integer("timeout", TIMEOUT_DEFAULT_MS)
    type_ = call.text("type", "master")
    if type_ not in ("master", "tablet"):
        raise YtError(GENERIC, f'the type of a transaction must be "tablet", or "master" for reading, not "{type_}"')
    if type_ == "master":
        return Reply({"transaction_id": call.cluster.master_transactions.start(timeout_ms / 1000)})
    transaction_id = object_id(TRANSACTION_TYPE, call.cluster.random.getrandbits(128))
    try:
        return Reply({"transaction_id": call.cluster.transactions.start(transaction_id, timeout_ms / 1000).id})
    except TransactionLimitError as error:
        raise YtError(GENERIC, f"{error}, or raise yt_transactions_max") from error


async def commit_transaction(call: Call) -> Reply:
    """Commit a transaction."""
    await _owner(call).commit(call.text("transaction_id"))
    return Reply({})


async def abort_transaction(call: Call) -> Reply:
    """Abort a transaction."""
    _owner(call).abort(call.text("transaction_id"))
    return Reply({})


async def ping_transaction(call: Call) -> Reply:
    """Extend the lifetime of a transaction."""
    _owner(call).ping(call.text("transaction_id"))
    return Reply({})


def _owner(call: Call) -> BufferedTransactions[EncodedRows] | MasterTransactions:
    """The transactions that hold the named one."""
    cluster = call.cluster
    return cluster.master_transactions if is_master(call.text("transaction_id")) else cluster.transactions


async def parse_ypath(call: Call) -> Reply:
    """Parse a path and its attributes."""
    from yt.ypath import parse_ypath as parse

    parse_path(call.get("path"))
    return Reply({"path": parse(call.get("path"))})


async def get_supported_features(call: Call) -> Reply:
    """Return the features that clients may use."""
    codecs = ["none"]
    types = ["int64", "uint64", "double", "boolean", "string", "utf8", "yson"]
    features: dict[str, Any] = {"primitive_types": types, "compression_codecs": codecs, "erasure_codecs": codecs}
    return Reply({"features": features})


async def generate_timestamp(call: Call) -> Reply:
    """Return the current time as a commit timestamp."""
    return Reply({"timestamp": int(call.cluster.clock.wall()) << 30})


COMMANDS = {
    "start_transaction": Command(start_transaction, is_volatile=True, takes_transaction=True, is_in_memory=True),
    "commit_transaction": Command(commit_transaction, is_volatile=True, takes_transaction=True),
    "abort_transaction": Command(abort_transaction, is_volatile=True, takes_transaction=True),
    "ping_transaction": Command(ping_transaction, is_volatile=True, takes_transaction=True),
    "start_tx": Command(start_transaction, is_volatile=True, takes_transaction=True, is_in_memory=True),
    "commit_tx": Command(commit_transaction, is_volatile=True, takes_transaction=True),
    "abort_tx": Command(abort_transaction, is_volatile=True, takes_transaction=True),
    "ping_tx": Command(ping_transaction, is_volatile=True, takes_transaction=True),
    "parse_ypath": Command(parse_ypath),
    "get_supported_features": Command(get_supported_features),
    "generate_timestamp": Command(generate_timestamp),
}
