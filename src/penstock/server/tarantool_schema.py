"""Installs the schema of streams in a Tarantool, for `penstock stream init-tarantool`."""

from __future__ import annotations


async def install_schema(url: str) -> None:
    """Create spaces, indexes and functions; doing it again changes nothing but the functions. ModuleNotFoundError without the
    extra `tarantool`."""
    from penstock.broker.streams.tarantool import connect, disconnect, install

    connection = await connect(url)
    try:
        await install(connection)
    finally:
        await disconnect(connection)
