"""A node with an interconnect and nothing else, in a process of its own, for tests that kill, stop and attack it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from random import Random

import uvloop

from penstock.core.clock import SystemClock
from penstock.interconnect import Interconnect, InterconnectOptions, NodeIdentity, Parts, ServedCall, SocketNetwork, TlsFiles

CLUSTER = b"test-cluster-id!"
ECHO, HANG, STATUS = 1, 2, 3


def tls_files(directory: Path | None) -> TlsFiles | None:
    """The files of a node in a directory of its own."""
    return None if directory is None else TlsFiles(directory / "cert.pem", directory / "key.pem", directory / "ca.pem")


def new_interconnect(
    node_id: int, tls: Path | None = None, options: InterconnectOptions | None = None, cluster: bytes = CLUSTER
) -> Interconnect:
    """The interconnect of a node that starts now."""
    identity = NodeIdentity(cluster, node_id, time.time_ns())
    return Interconnect(identity, SocketNetwork(tls_files(tls)), clock=SystemClock(), random=Random(), options=options)


class Program:
    """What the node does: it echoes, hangs, and says what it did."""

    def __init__(self, node_id: int, tls: Path | None) -> None:
        self.interconnect = new_interconnect(node_id, tls)
        self.interconnect.service.register(1, {ECHO: self.echo, HANG: self.hang, STATUS: self.status})
        self.interconnect.service.register(9, {ECHO: self.echo})
        self.served: list[str] = []
        self.cancelled = 0

    async def echo(self, call: ServedCall) -> Parts:
        body = bytes(call.body or b"")
        self.served.append(body[:20].decode(errors="replace"))
        return (body,)

    async def hang(self, call: ServedCall) -> Parts:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ()

    def status(self, call: ServedCall) -> Parts:
        resident = int(Path("/proc/self/status").read_text(encoding="ascii").split("VmRSS:")[1].split()[0]) << 10
        probe = self.interconnect.service.probe
        found = {
            "served": self.served[-1000:],
            "cancelled": self.cancelled,
            "resident": resident,
            "peers": probe.peers,
            "strangers": probe.strangers,
            "refused": probe.refused,
            "bytes_held": probe.bytes_held,
        }
        return (json.dumps(found).encode(),)

    async def run(self, address: str) -> None:
        address = await self.interconnect.listen(address)
        sys.stdout.write(json.dumps({"address": address}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("node_id", type=int)
    arguments.add_argument("address")
    arguments.add_argument("--tls", type=Path)
    options = arguments.parse_args()

    async def run() -> None:
        await Program(options.node_id, options.tls).run(options.address)

    uvloop.run(run())


if __name__ == "__main__":
    main()
