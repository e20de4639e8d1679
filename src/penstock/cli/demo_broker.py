"""The second half of `penstock demo`: a broker under a producer, killed on the way, and nothing lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

MESSAGES = 30_000
TOPIC = "demo"
START_S = 30.0
_PENSTOCK = (sys.executable, "-m", "penstock.cli.main")

Say = Callable[..., None]


async def show_broker(path: Path, say: Say) -> None:
    """Start a node, write to it, kill -9 and start it again while the producer goes on, and read everything back."""
    print(f"7. A broker: `penstock up`, and a producer that sends {MESSAGES:,} messages; kill -9 in between.")
    node, port = await _up(path, "0")
    producer = await asyncio.create_subprocess_exec(
        *_PENSTOCK, "produce", TOPIC, "--bootstrap", f"127.0.0.1:{port}", stdin=asyncio.subprocess.PIPE
    )
    feeding = asyncio.create_task(_feed(producer))
    await asyncio.sleep(0.6)
    node.kill()
    await node.wait()
    node, _ = await _up(path, port)
    code = await producer.wait()
    await feeding
    say("the broker died and came back; the producer noticed only a pause", held=code == 0)
    reader = await asyncio.create_subprocess_exec(
        *_PENSTOCK, "consume", TOPIC, "--bootstrap", f"127.0.0.1:{port}", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await reader.communicate()
    node.terminate()
    await node.wait()
    got = out.decode().split()
    say(f"{len(got):,} messages read back: each once, in order", held=got == [str(number) for number in range(MESSAGES)])


async def _up(path: Path, port: str) -> tuple[asyncio.subprocess.Process, str]:
    """A node that is ready, and its port."""
    options = ["--data-dir", str(path / "broker"), "--kafka-port", port, "-o", "json", "--log-level", "error"]
    node = await asyncio.create_subprocess_exec(*_PENSTOCK, "up", *options, stdout=asyncio.subprocess.PIPE)
    assert node.stdout is not None
    async with asyncio.timeout(START_S):
        ready = json.loads(await node.stdout.readline())
    return node, str(ready["listeners"]["kafka"]["port"])


async def _feed(producer: asyncio.subprocess.Process) -> None:
    assert producer.stdin is not None
    for begin in range(0, MESSAGES, 100):
        producer.stdin.write("".join(f"{number}\n" for number in range(begin, begin + 100)).encode())
        await producer.stdin.drain()
        await asyncio.sleep(0.005)
    producer.stdin.close()
