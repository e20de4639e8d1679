"""Commands on tablet transactions, and a few that tell clients about the cluster."""

from __future__ import annotations

from typing import Any

from penstock.broker import BufferedTransactions, TransactionLimitError
from penstock.broker.namespace import object_id
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.encoded_rows import EncodedRows
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.paths import path_of
from penstock.gateway.yt.read_locks import MasterTransactions, is_master

TRANSACTION_TYPE = 5
TIMEOUT_DEFAULT_MS = 30_000


async def start_transaction(call: Call) -> Reply:
    """A new transaction; it lives as long as it is pinged or used. One of masters is for readers, and changes nothing."""
    timeout_ms = call.whole("timeout", TIMEOUT_DEFAULT_MS)
    type_ = call.text("type", "master")
    if type_ not in ("master", "tablet"):
        raise YtError(GENERIC, f'a transaction is of type "tablet", or "master" for reading, not "{type_}"')
    if type_ == "master":
        return Reply({"transaction_id": call.cluster.master_transactions.start(timeout_ms / 1000)})
    made = object_id(TRANSACTION_TYPE, call.cluster.random.getrandbits(128))
    try:
        return Reply({"transaction_id": call.cluster.transactions.start(made, timeout_ms / 1000).id})
    except TransactionLimitError as error:
        raise YtError(GENERIC, f"{error}, or raise yt_transactions_max") from error


async def commit_transaction(call: Call) -> Reply:
    """Carry it out."""
    await _owner(call).commit(call.text("transaction_id"))
    return Reply({})


async def abort_transaction(call: Call) -> Reply:
    """Forget it."""
    _owner(call).abort(call.text("transaction_id"))
    return Reply({})


async def ping_transaction(call: Call) -> Reply:
    """Keep it alive."""
    _owner(call).ping(call.text("transaction_id"))
    return Reply({})


def _owner(call: Call) -> BufferedTransactions[EncodedRows] | MasterTransactions:
    """Where the transaction that is named is kept."""
    cluster = call.cluster
    return cluster.master_transactions if is_master(call.text("transaction_id")) else cluster.transactions


async def parse_ypath(call: Call) -> Reply:
    """A path with its attributes taken apart."""
    from yt.ypath import parse_ypath as parse

    path_of(call.get("path"))
    return Reply({"path": parse(call.get("path"))})


async def get_supported_features(call: Call) -> Reply:
    """What a client may use."""
    codecs = ["none"]
    types = ["int64", "uint64", "double", "boolean", "string", "utf8", "yson"]
    features: dict[str, Any] = {"primitive_types": types, "compression_codecs": codecs, "erasure_codecs": codecs}
    return Reply({"features": features})


async def generate_timestamp(call: Call) -> Reply:
    """The present as a timestamp of a commit."""
    return Reply({"timestamp": int(call.cluster.clock.wall()) << 30})


COMMANDS = {
    "start_transaction": Command(start_transaction, is_volatile=True, takes_transaction=True, is_forgotten=True),
    "commit_transaction": Command(commit_transaction, is_volatile=True, takes_transaction=True),
    "abort_transaction": Command(abort_transaction, is_volatile=True, takes_transaction=True),
    "ping_transaction": Command(ping_transaction, is_volatile=True, takes_transaction=True),
    "start_tx": Command(start_transaction, is_volatile=True, takes_transaction=True, is_forgotten=True),
    "commit_tx": Command(commit_transaction, is_volatile=True, takes_transaction=True),
    "abort_tx": Command(abort_transaction, is_volatile=True, takes_transaction=True),
    "ping_tx": Command(ping_transaction, is_volatile=True, takes_transaction=True),
    "parse_ypath": Command(parse_ypath),
    "get_supported_features": Command(get_supported_features),
    "generate_timestamp": Command(generate_timestamp),
}
