"""Two real processes: one is killed, stopped and started again, sends too much or is told nothing, and calls to it still end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.core.errors import ConfigError
from penstock.interconnect import CallStatus, Interconnect
from penstock.interconnect.connection import UNIX_SEND_BYTES
from tests.e2e.interconnect.node_program import ECHO, HANG, new_interconnect
from tests.e2e.interconnect.running_peer import ROOT, call, connected, running_peer, status_of, until

LOOPS = ("asyncio", "uvloop")


def run(main: Coroutine[Any, Any, None], loop: str = "uvloop") -> None:
    if loop == "uvloop":
        uvloop.run(main)
    else:
        asyncio.run(main)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_bodies_of_all_sizes_come_back_in_any_order(tmp_path: Path, kind: str, loop: str) -> None:
    async def main(address: str) -> None:
        own = new_interconnect(1)
        link = await connected(own.link(2, address))
        hanging = link.call(HANG, 1, (b"",), timeout_s=60.0)
        order: list[int] = []

        async def echo(size: int) -> None:
            body = os.urandom(size)
            reply = await call(link, ECHO, body)
            assert (reply.status, bytes(reply.body) == body) == (CallStatus.OK, True)
            order.append(size)

        async with asyncio.TaskGroup() as group:
            for size in (8 << 20, 4 << 20, 1 << 20, 65537, 65536, 4096, 0, 100):
                group.create_task(echo(size))
        assert order.index(100) < order.index(8 << 20)
        hanging.cancel()
        assert (await status_of(link))["bytes_held"] < 1000
        await own.close()

    with running_peer(2, f"unix:{tmp_path}/peer" if kind == "unix" else "127.0.0.1:0") as peer:
        run(main(peer.address), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_unix_socket_takes_a_whole_write(tmp_path: Path, loop: str) -> None:
    allowed = int(Path("/proc/sys/net/core/wmem_max").read_text(encoding="ascii"))

    async def main(address: str) -> None:
        own = new_interconnect(1)
        link = await connected(own.link(2, address))
        connection = link._calls
        assert connection is not None
        assert connection._transport is not None
        taken = connection._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert taken == 2 * min(UNIX_SEND_BYTES, allowed)  # the kernel doubles it, for what it needs itself
        await own.close()

    with running_peer(2, f"unix:{tmp_path}/peer") as peer:
        run(main(peer.address), loop)


def test_a_killed_peer_breaks_calls_at_once_and_is_found_again(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/peer"
    own: list[Interconnect] = []

    async def main() -> None:
        own.append(new_interconnect(1))
        with running_peer(2, address) as peer:
            link = await connected(own[0].link(2, address))
            hanging = link.call(HANG, 1, (b"",), timeout_s=60.0)
            assert (await call(link, ECHO, b"first")).status is CallStatus.OK
            peer.process.kill()
            assert (await asyncio.wait_for(hanging, 5.0)).status is CallStatus.BROKEN
            assert (await call(link, ECHO)).status is CallStatus.UNREACHABLE
        with running_peer(2, address):
            await connected(link, within_s=10.0)
            assert (await call(link, ECHO, b"second")).status is CallStatus.OK
            assert (await status_of(link))["served"] == ["second"]
        await own[0].close()

    run(main())


def test_a_stopped_peer_fails_calls_by_its_heartbeat_and_runs_no_late_ones(tmp_path: Path) -> None:
    async def main(address: str, pid: int) -> None:
        own = new_interconnect(1)
        link = await connected(own.link(2, address))
        assert (await call(link, ECHO, b"before")).status is CallStatus.OK
        await asyncio.sleep(0.3)
        os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            short = link.call(ECHO, 1, (b"short",), timeout_s=0.2)
            long = link.call(ECHO, 1, (b"long",), timeout_s=60.0)
            assert (await short).status is CallStatus.EXPIRED
            assert (await asyncio.wait_for(long, 30.0)).status is CallStatus.BROKEN
            assert "no heartbeat" in link.why_down
            refused = await call(link, ECHO)
            assert refused.status is CallStatus.UNREACHABLE
            await asyncio.sleep(max(0.0, 3.0 - (time.monotonic() - stopped)))
        finally:
            os.kill(pid, signal.SIGCONT)
        await connected(link)
        assert (await call(link, ECHO, b"after")).status is CallStatus.OK
        served = (await status_of(link))["served"]
        assert "short" not in served
        assert served[-1] == "after"
        await own.close()

    with running_peer(2, f"unix:{tmp_path}/peer") as peer:
        run(main(peer.address, peer.process.pid))


def test_handlers_end_when_their_caller_is_killed(tmp_path: Path) -> None:
    async def main(address: str) -> None:
        caller = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import asyncio, sys\n"
            "from tests.e2e.interconnect.node_program import HANG, new_interconnect\n"
            "from tests.e2e.interconnect.running_peer import connected\n"
            "async def main():\n"
            "    link = await connected(new_interconnect(7).link(2, sys.argv[1]))\n"
            "    link.call(HANG, 1, (b'x' * 100,), timeout_s=60.0)\n"
            "    print('called', flush=True)\n"
            "    await asyncio.sleep(60)\n"
            "asyncio.run(main())\n",
            address,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert caller.stdout is not None
        assert await caller.stdout.readline() == b"called\n"
        own = new_interconnect(1)
        link = await connected(own.link(2, address))
        await until(link, lambda status: status["bytes_held"] > 300)
        caller.kill()
        await caller.wait()
        await until(link, lambda status: bool(status["cancelled"]))
        await own.close()

    with running_peer(2, f"unix:{tmp_path}/peer") as peer:
        asyncio.run(asyncio.wait_for(main(peer.address), 60.0))


def test_a_unix_socket_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "peer"

    async def main() -> None:
        with running_peer(2, f"unix:{path}"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            second = new_interconnect(3)
            with pytest.raises(ConfigError, match="another process listens at"):
                await second.listen(f"unix:{path}")
        # The process was killed and left its socket behind.
        assert path.exists()
        await second.listen(f"unix:{path}")
        await second.close()
        assert not path.exists()
        path.write_bytes(b"precious")
        with pytest.raises(ConfigError, match="is no socket"):
            await second.listen(f"unix:{path}")
        with pytest.raises(ConfigError, match="longer than 107 bytes"):
            await second.listen(f"unix:{tmp_path}/{'x' * 120}")

    run(main())


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:7000", "some.host:7000"])
def test_without_tls_only_the_loopback_interface_is_listened_on(address: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="without TLS"):
            await new_interconnect(1).listen(address)

    run(main())


@pytest.mark.parametrize("address", ["", "host", "host:", ":5", "host:port", "host:70000"])
def test_what_is_no_address_is_told_so(address: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="HOST:PORT or unix:PATH"):
            await new_interconnect(1).listen(address)

    run(main())
