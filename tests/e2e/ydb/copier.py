"""Copies messages from one topic to another by transactions: `python -m tests.e2e.ydb.copier PORT COUNT`.

It prints how many messages each transaction had, once that is committed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import ydb


async def copy(driver: Any, pool: Any, *, source: str, target: str, count: int, told: Callable[[int], object]) -> None:
    """Copy so many messages, each batch with its position; `told` is told of each."""
    left = count
    async with driver.topic_client.reader(source, consumer="reader") as reader:

        async def once(tx: Any) -> int:
            batch = await asyncio.wait_for(reader.receive_batch_with_tx(tx, max_messages=10), 30)
            writer = driver.topic_client.tx_writer(tx, target)
            await writer.write([message.data.upper() for message in batch.messages])
            return len(batch.messages)

        while left > 0:
            copied = await pool.retry_tx_async(once)
            told(copied)
            left -= copied


async def _main(port: str, count: int) -> None:
    async with (
        ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{port}", database="/local") as driver,
        ydb.aio.QuerySessionPool(driver) as pool,
    ):
        await copy(driver, pool, source="/local/from", target="/local/to", count=count, told=_say)


def _say(copied: int) -> None:
    sys.stdout.write(f"{copied}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
