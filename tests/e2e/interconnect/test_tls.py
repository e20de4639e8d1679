"""TLS between nodes: certificates of the cluster's CA on both sides, exchanged while nodes run; strangers get nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest
import uvloop

from penstock.core.errors import ConfigError
from penstock.interconnect import CallStatus, Link
from tests.e2e.interconnect.node_program import ECHO, new_interconnect, tls_files
from tests.e2e.interconnect.running_peer import call, connected, running_peer, status_of, until

TLS = Path(__file__).parent / "tls"


def install(directory: Path, *, node: str | None = None, authorities: str | None = None) -> Path:
    """Replace files of a node as an operator does: each by a rename."""
    directory.mkdir(exist_ok=True)
    files: dict[str, bytes] = {}
    if node is not None:
        files["cert.pem"] = (TLS / f"node_{node}.pem").read_bytes()
        files["key.pem"] = (TLS / f"node_{node}.key.pem").read_bytes()
    if authorities is not None:
        files["ca.pem"] = b"".join((TLS / f"ca_{name}.pem").read_bytes() for name in authorities)
    for name, content in files.items():
        (directory / "new").write_bytes(content)
        os.replace(directory / "new", directory / name)
    return directory


async def reconnected(link: Link) -> None:
    """Make both connections of a link again."""
    address = link.address
    link.move("127.0.0.1:1")
    link.move(address)
    await connected(link)
    assert (await call(link, ECHO, os.urandom(200_000))).status is CallStatus.OK


def test_certificates_and_the_ca_are_exchanged_while_nodes_run(tmp_path: Path) -> None:
    first, second = (install(tmp_path / name, node="a", authorities="a") for name in ("first", "second"))

    async def main(address: str) -> None:
        own = new_interconnect(1, first)
        link = await connected(own.link(2, address))
        assert (await call(link, ECHO, b"x" * 3_000_000)).status is CallStatus.OK
        for directory in (first, second):
            install(directory, authorities="ab")
        await reconnected(link)
        install(second, node="b")
        await reconnected(link)
        install(first, node="b")
        await reconnected(link)
        for directory in (first, second):
            install(directory, authorities="b")
        await reconnected(link)
        # Who missed the exchange is out.
        late = new_interconnect(3, install(tmp_path / "late", node="a", authorities="ab"))
        outside = late.link(2, address)
        await asyncio.sleep(1.0)
        assert not outside.is_connected
        assert (await call(outside, ECHO)).status is CallStatus.UNREACHABLE
        await late.close()
        await own.close()

    with running_peer(2, "127.0.0.1:0", tls=second) as peer:
        uvloop.run(asyncio.wait_for(main(peer.address), 60.0))


def test_files_that_do_not_fit_together_leave_those_before_in_use(tmp_path: Path) -> None:
    directory = install(tmp_path / "node", node="a", authorities="a")
    files = tls_files(directory)
    assert files is not None
    context = files.server_context()
    shutil.copy(TLS / "node_b.key.pem", directory / "key.pem")
    assert files.server_context() is context
    assert files.server_context() is context
    assert files.failed_reloads == 1
    (directory / "key.pem").unlink()
    assert files.client_context() is not None
    install(directory, node="b", authorities="b")
    assert files.server_context() is not context
    assert files.reloads == 1


def test_files_that_never_worked_are_an_error_that_names_them(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=r"cert\.pem"):
            await new_interconnect(1, tmp_path).listen("127.0.0.1:0")

    uvloop.run(main())


def test_who_shows_no_certificate_of_the_cluster_gets_nothing(tmp_path: Path) -> None:
    directory = install(tmp_path / "node", node="a", authorities="a")

    def stranger(address: str, *, node: str | None) -> bytes:
        """What a client without the right certificate reads."""
        host, _, port = address.rpartition(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if node is not None:
            context.load_cert_chain(TLS / f"node_{node}.pem", TLS / f"node_{node}.key.pem")
        with socket.create_connection((host, int(port)), 10) as plain:
            plain.settimeout(10)
            try:
                with context.wrap_socket(plain) as secured:
                    secured.sendall(b"x" * 100_000)
                    return secured.recv(1000)
            except (ssl.SSLError, OSError):
                return b""

    def silent(address: str) -> bytes:
        """What a client reads that does not speak TLS at all."""
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain:
            plain.settimeout(10)
            try:
                plain.sendall(b"PSIC" * 100)
                return plain.recv(1000)
            except OSError:
                return b""

    async def main(address: str) -> None:
        own = new_interconnect(1, directory)
        link = await connected(own.link(2, address))
        for node in (None, "b"):
            assert await asyncio.to_thread(stranger, address, node=node) == b""
        assert (await asyncio.to_thread(silent, address))[:1] in (b"", b"\x15")  # a TLS alert at most
        # More of them than a node keeps, all silent: a peer is let in beside them.
        crowd = [socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 10) for _ in range(100)]
        other = new_interconnect(3, directory)
        assert (await call(await connected(other.link(2, address)), ECHO)).status is CallStatus.OK
        status = await status_of(link)
        assert status["strangers"] <= 64
        for stranger_socket in crowd:
            stranger_socket.close()
        # They had three seconds to say who they are.
        await until(link, lambda status: status["strangers"] == 0)
        await other.close()
        await own.close()

    with running_peer(2, "127.0.0.1:0", tls=directory) as peer:
        uvloop.run(asyncio.wait_for(main(peer.address), 60.0))
