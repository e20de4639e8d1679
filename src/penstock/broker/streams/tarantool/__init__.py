"""Streams in Tarantool and an object store. It needs the extra `tarantool`, so import it only to use it."""

from penstock.broker.streams.tarantool.objects import ObjectPayloads, open_objects
from penstock.broker.streams.tarantool.streams import TarantoolStreams, connect, disconnect, install

__all__ = ["ObjectPayloads", "TarantoolStreams", "connect", "disconnect", "install", "open_objects"]
