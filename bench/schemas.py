"""What schemas cost: checks of messages by the id that they name and by their content, and lookups of schemas by id over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from typing import Any

import fastavro

from bench.kafka_frames import create_frame, error_code, produce_error_at, produce_frame
from bench.measure import Duel, Row, Setting, count_rate, limit_row, quartiles
from bench.process_cpu import cpu_s
from penstock.broker.schema_rules import AllowedIds
from penstock.core.record_format import HEADER_SIZE
from penstock.schemas import check_of, parse_schema
from penstock.testing.batches import make_batch

PLAIN, CHECKED = "bench-plain", "bench-check"  # equally long, so that their requests are
ID_COST_GOAL = 1.03
FULL_GOAL = 1_000_000
LOOKUP_GOAL = 5_000
RECORDS = 1000
KIB = 1024
PRODUCES = 100
LOOKUPS = 2000
CONNECTIONS = 8
SCHEMAS = 200
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "paid", "type": "boolean"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
    ],
}


async def rows(setting: Setting) -> list[Row]:
    """Validation by id, validation in full, lookups."""
    with _node(setting.directory("schemas")) as node:
        found = [
            await asyncio.to_thread(_id_row, setting, node, what, values, goal)
            for what, values, goal in (
                ("one record of 1 KiB", [bytes(KIB)], ID_COST_GOAL),
                ("60 records of 1 KiB", [bytes(KIB)] * 60, ID_COST_GOAL),
                (f"{RECORDS:,} records of some 40 bytes", _orders(RECORDS), None),
            )
        ]
        found.append(await asyncio.to_thread(_lookup_row, setting, node))
    found.append(await asyncio.to_thread(_full_row, setting))
    return found


class _Node:
    """A node's process, and where it listens."""

    def __init__(self, pid: int, listeners: dict[str, Any]) -> None:
        self.pid = pid
        self.kafka_port = int(listeners["kafka"]["port"])
        self.registry_port = int(listeners["schema_registry"]["port"])

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One call of the registry."""
        connection = http.client.HTTPConnection("127.0.0.1", self.registry_port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {content[:500]!r}")
        return json.loads(content)


@contextmanager
def _node(directory: Path) -> Iterator[_Node]:
    argv = [sys.executable, "-m", "penstock.cli.main", "up", "-o", "json", "--kafka-port", "0", "--schema-registry-port", "0"]
    argv += ["--http-port", "none", "--data-dir", str(directory), "--durability", "os", "--log-level", "error"]
    with Popen([*argv, "--auto-create-topics", "true"], stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            yield _Node(process.pid, json.loads(process.stdout.readline())["listeners"])
        finally:
            process.terminate()
            process.wait()


def _orders(count: int) -> list[bytes]:
    found: list[bytes] = []
    schema = fastavro.parse_schema(ORDER)
    for number in range(count):
        order = {"id": number, "customer": f"customer {number % 97}", "paid": number % 2 == 0, "amount": number / 7}
        packed = io.BytesIO()
        fastavro.schemaless_writer(packed, schema, {**order, "note": "by the door" if number % 3 else None, "state": "PAID"})
        found.append(packed.getvalue())
    return found


def _framed(schema_id: int, payloads: list[bytes]) -> list[bytes]:
    return [b"\0" + schema_id.to_bytes(4, "big") + payload for payload in payloads]


def _id_row(setting: Setting, node: _Node, what: str, values: list[bytes], goal: float | None) -> Row:
    """The node's CPU for a produce to a topic that is checked over one that is not, in turns."""
    schema_id = node.ask("POST", f"/subjects/{CHECKED}-value/versions", {"schema": json.dumps(ORDER)})["id"]
    batch = make_batch(_framed(schema_id, values))
    address = ("127.0.0.1", node.kafka_port)
    with socket.create_connection(address, 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for topic in (PLAIN, CHECKED):
            _answer(connection, create_frame(topic))
        _configure(node.kafka_port)
        frames = {topic: produce_frame(topic, 0, batch) for topic in (PLAIN, CHECKED)}
        duel = Duel()
        produces = PRODUCES if len(values) > 1 else 10 * PRODUCES
        for number in range(setting.rounds(50) + 1):
            costs: dict[str, float] = {}
            for topic in (PLAIN, CHECKED) if number % 2 else (CHECKED, PLAIN):
                before = cpu_s(node.pid)
                for _ in range(produces):
                    reply = _answer(connection, frames[topic])
                    if code := error_code(reply, produce_error_at(topic)):
                        raise RuntimeError(f"the node has refused a produce with error {code}")
                costs[topic] = (cpu_s(node.pid) - before) / produces
            if number:  # the first round is not counted
                duel.raw.append(costs[PLAIN])
                duel.ours.append(costs[CHECKED])
    ratios = [ours / raw for ours, raw in zip(duel.ours, duel.raw, strict=True)]
    name = f"schemas: CPU of a produce of {what} with validation=id, over none"
    ours, beside = f"{median(duel.ours) * 1e6:.0f} us", f"none {median(duel.raw) * 1e6:.0f} us"
    return Row(name, ours, beside, median(ratios), "x", goal, False, *quartiles(ratios))


def _configure(port: int) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    setting = ConfigEntry("penstock.schema.validation", "id", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, CHECKED, incremental_configs=[setting])
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(60)


def _answer(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(frame)
    head = connection.recv(4, socket.MSG_WAITALL)
    return head + connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)


def _lookup_row(setting: Setting, node: _Node) -> Row:
    """Lookups a second of the node's CPU, on connections that stay open."""
    ids = [
        node.ask("POST", f"/subjects/looked-up-{number}/versions", {"schema": json.dumps({**ORDER, "name": f"Order{number}"})})[
            "id"
        ]
        for number in range(SCHEMAS)
    ]
    requests = [f"GET /schemas/ids/{one} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode() for one in ids]
    connections = [socket.create_connection(("127.0.0.1", node.registry_port), 60) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rates: list[float] = []
    walls: list[float] = []
    for number in range(setting.rounds(25) + 1):
        before, started = cpu_s(node.pid), time.perf_counter()
        for first in range(0, LOOKUPS, CONNECTIONS):
            for at, connection in enumerate(connections):
                connection.sendall(requests[(first + at) % SCHEMAS])
            for connection in connections:
                _read_schema(connection)
        if number:
            rates.append(LOOKUPS / (cpu_s(node.pid) - before))
            walls.append(LOOKUPS / (time.perf_counter() - started))
    for connection in connections:
        connection.close()
    name = "schemas: lookups by id over HTTP, a second of CPU"
    ours, beside = count_rate(median(rates)), f"by the clock {count_rate(median(walls))}"
    return limit_row(name, rates, unit="1/s", goal=LOOKUP_GOAL, at_least=True, ours=ours, beside=beside)


def _read_schema(connection: socket.socket) -> None:
    received = connection.recv(1 << 16)
    while True:
        head, end, body = received.partition(b"\r\n\r\n")
        if end:
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            if len(body) >= int(length.partition(b":")[2]):
                break
        received += connection.recv(1 << 16)
    if not received.startswith(b"HTTP/1.1 200") or b'"schema"' not in body:
        raise RuntimeError(f"the registry has answered {received[:200]!r}")


def _full_row(setting: Setting) -> Row:
    """Records of a batch decoded and checked, a second of CPU; beside what fastavro reads."""
    payloads = _orders(RECORDS)
    batch = make_batch(_framed(1, payloads))
    records = batch[HEADER_SIZE:]
    ids = array("q", [1])
    allowed, checks = AllowedIds("orders", None, ids), {1: check_of(parse_schema("AVRO", json.dumps(ORDER), {}))}
    schema = fastavro.parse_schema(ORDER)

    def ours() -> None:
        for _ in range(100):
            allowed.check(records, 0, RECORDS)
            allowed.check_payloads(records, 0, RECORDS, checks)

    def beside() -> None:
        for payload in payloads:
            fastavro.schemaless_reader(io.BytesIO(payload), schema, None)

    rounds = setting.rounds(25)
    rates = [_cpu_rate(ours, 100 * RECORDS) for _ in range(rounds)]
    peer = median(_cpu_rate(beside, RECORDS) for _ in range(rounds))
    name = "schemas: Avro records with validation=full, a second of CPU"
    return limit_row(
        name,
        rates,
        unit="1/s",
        goal=FULL_GOAL,
        at_least=True,
        ours=count_rate(median(rates)),
        beside=f"fastavro {count_rate(peer)}",
    )


def _cpu_rate(work: Callable[[], None], amount: int) -> float:
    before = time.thread_time()
    work()
    return amount / (time.thread_time() - before)
