"""What `penstock doctor` says about the network: whether the ports of a node are free, by whom they are taken, and whether a node
answers."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli.doctor_finding import EVERYWHERE, Finding, fail, ok, warn
from penstock.cli.sizes import counted
from penstock.core.errors import PenstockError
from penstock.server import SETTINGS, NodeConfig

if TYPE_CHECKING:
    from penstock.cli.kafka_client import CommandClient

Address = IPv4Address | IPv6Address

READY_S: Final = 3.0
READY_BYTES_MAX: Final = 64 << 10
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING: Final = "0A"
_PROC: Final = Path("/proc")


def check_ports(config: NodeConfig) -> Iterator[Finding]:
    """Each port that the node would listen on."""
    for setting in SETTINGS.values():
        port = getattr(config, setting.key)
        if setting.key.endswith("_port") and port:
            yield _port(setting.key, setting.option, config.host, port)


def check_node(client: CommandClient, *, is_asked_for: bool) -> Finding:
    """A node that answers. That there is none is a failure only if one was named."""
    try:
        with client:
            answer = client.metadata(None)
    except PenstockError as error:
        if is_asked_for:
            return fail("node", str(error), "start a node there, or give another --bootstrap")
        return ok("node", "no node is running here", "penstock up")
    shown = ", ".join(f"{broker.node_id} at {broker.host}:{broker.port}" for broker in answer.brokers)
    visible = [topic for topic in answer.topics if not topic.is_internal]
    return ok("node", f"{shown} answers; cluster {answer.cluster_id}, {counted(len(visible), 'topic')}")


def check_readiness(config: NodeConfig) -> Finding | None:
    """What a node on this machine says of itself over plain HTTP; None if nothing listens there, or something that is no node."""
    if not config.http_port or config.tls_cert is not None:
        return None
    host = "127.0.0.1" if config.host in EVERYWHERE else config.host
    connection = HTTPConnection(host, config.http_port, timeout=READY_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(READY_BYTES_MAX).decode(errors="replace").strip()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    if answer.status == HTTPStatus.OK and (damage := _damage(text)):
        more = f"; and {len(damage) - 1} more" if len(damage) > 1 else ""
        return fail("readiness", f"the node is ready, but data is damaged: {damage[0]}{more}", "penstock status says what to do")
    if answer.status == HTTPStatus.OK:
        return ok("readiness", "the node reports ready")
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return warn("readiness", f"the node reports not ready: {text[:500]}", "check its log")
    return None


def _damage(text: str) -> list[str]:
    """What a node that is ready says of damaged data."""
    try:
        answer = json.loads(text)
    except ValueError:
        return []
    return list(answer.get("damage", ())) if isinstance(answer, dict) else []


def _port(key: str, option: str, host: str, port: int) -> Finding:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        return fail(key, f"{host} is not found: {error.strerror}", "correct host")
    with socket.socket(family, kind, protocol) as probe:
        # As a node does: what only lingers after a restart is not in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except PermissionError:
            return fail(key, f"{port} needs privileges that this user does not have", f"choose one from 1024 on: {option} PORT")
        except OSError as error:
            return _taken(key, option, str(address[0]), port, error)
    return ok(key, f"{port} is free")


def _taken(key: str, option: str, address: str, port: int, error: OSError) -> Finding:
    holder = _holder(ip_address(address), port)
    if holder is None:
        return fail(key, f"{port} cannot be listened on: {error.strerror}", f"choose another: {option} PORT, 0 for any")
    pid, command = holder
    if "penstock" in command and " up" in command:
        return ok(key, f"{port} is in use by a running node, process {pid}", f"a second one needs another: {option} PORT")
    return warn(
        key, f"{port} is in use by process {pid}: {command[:60]}", f"stop it, or choose another: {option} PORT, 0 for any"
    )


def _holder(address: Address, port: int) -> tuple[int, str] | None:
    """The process that listens there, as far as this user may see."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(address, port)}
    for process in _PROC.glob("[0-9]*"):
        try:
            if any(os.readlink(entry) in inodes for entry in (process / "fd").iterdir()):
                return int(process.name), (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it has ended, or belongs to another user
    return None


def _listening_inodes(address: Address, port: int) -> Iterator[str]:
    """From the kernel's table: number, local address, remote address, state, …, the tenth field is the inode. Others may listen
    on the same port of other addresses."""
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            local, _, number = fields[1].rpartition(":")
            if fields[3] == _LISTENING and int(number, 16) == port and _collide(_table_address(local), address):
                yield fields[9]


def _table_address(text: str) -> Address:
    """Each word of four bytes stands there as this machine's processor has it."""
    words = (bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8))
    address = ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))
    return getattr(address, "ipv4_mapped", None) or address


def _collide(first: Address, other: Address) -> bool:
    return first == other or first.is_unspecified or other.is_unspecified
