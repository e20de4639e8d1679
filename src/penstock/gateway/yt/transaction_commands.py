"""Commands on tablet transactions, and a few that tell clients about the cluster."""

from __future__ import annotations

from typing import Any

from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.paths import path_of
from penstock.gateway.yt.tablet_transactions import TIMEOUT_DEFAULT_MS


async def start_transaction(call: Call) -> Reply:
    """A new transaction; it lives as long as it is pinged or used."""
    if call.text("type", "master") != "tablet":
        raise YtError(GENERIC, "only tablet transactions are kept here: start it with type=tablet")
    transaction = call.cluster.transactions.start(call.whole("timeout", TIMEOUT_DEFAULT_MS))
    return Reply({"transaction_id": transaction.id})


async def commit_transaction(call: Call) -> Reply:
    """Carry it out."""
    await call.cluster.transactions.commit(call.text("transaction_id"))
    return Reply({})


async def abort_transaction(call: Call) -> Reply:
    """Forget it."""
    call.cluster.transactions.abort(call.text("transaction_id"))
    return Reply({})


async def ping_transaction(call: Call) -> Reply:
    """Keep it alive."""
    call.cluster.transactions.find(call.text("transaction_id"))
    return Reply({})


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
    "start_transaction": Command(start_transaction, is_volatile=True),
    "commit_transaction": Command(commit_transaction, is_volatile=True),
    "abort_transaction": Command(abort_transaction, is_volatile=True),
    "ping_transaction": Command(ping_transaction, is_volatile=True),
    "start_tx": Command(start_transaction, is_volatile=True),
    "commit_tx": Command(commit_transaction, is_volatile=True),
    "abort_tx": Command(abort_transaction, is_volatile=True),
    "ping_tx": Command(ping_transaction, is_volatile=True),
    "parse_ypath": Command(parse_ypath),
    "get_supported_features": Command(get_supported_features),
    "generate_timestamp": Command(generate_timestamp),
}
