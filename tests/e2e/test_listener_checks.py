"""Readiness covers every listener by really connecting: one that is dead, silent or broken is told."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.server import listener_checks
from penstock.server.config import NodeConfig
from penstock.server.listener_checks import ListenerChecks
from penstock.server.metrics.alerts import EACH_MAX, alerts_of
from penstock.server.node import Node
from tests.e2e.kafka.secured import CERTIFICATE, KEY

LISTENERS = ("kafka", "http", "yt", "ydb", "stream", "stream_http")


class At(NamedTuple):
    host: str
    port: int


def _ready(port: int) -> tuple[int, list[str]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
            return answer.status, json.load(answer)["reasons"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["reasons"]


def _config(path: Path, **more: Any) -> NodeConfig:
    ports = {f"{name}_port": 0 for name in LISTENERS}
    return NodeConfig(data_dir=path / "data", host="127.0.0.1", **{**ports, **more})


def test_a_listener_that_is_gone_makes_the_node_not_ready(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await Node.start(_config(tmp_path))
        try:
            port = node.listeners["http"].port
            assert set(node.listeners) == set(LISTENERS)
            assert await asyncio.to_thread(_ready, port) == (200, [])
            stopped: list[str] = []
            for name, gateway in node.observatory._gateways:
                if name == "http" or name in stopped:
                    continue
                await gateway.stop()  # type: ignore[attr-defined]
                stopped.append(name)
            await asyncio.sleep(1.1)
            status, reasons = await asyncio.to_thread(_ready, port)
            assert status == 503
            for name in stopped:
                assert any(reason.startswith(f"the {name} listener does not answer") for reason in reasons), reasons
            alerts = [alert.message for alert in alerts_of(node.observatory._facts()) if alert.code == "listener_down"]
            assert len(alerts) == min(len(reasons), EACH_MAX)
        finally:
            await node.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("with_plain_kafka", [False, True])
def test_listeners_that_speak_tls_are_checked_by_it(tmp_path: Path, with_plain_kafka: bool) -> None:
    async def scenario() -> None:
        more = {"kafka_tls_port": 0} if with_plain_kafka else {}
        password = {"sasl": True, "admin_password": "secret"}
        node = await Node.start(_config(tmp_path, tls_cert=CERTIFICATE, tls_key=KEY, **more, **password))
        try:
            sources = node.observatory.sources
            assert sources is not None
            assert sources.checks is not None
            await sources.checks.refresh(0.0)
            assert sources.checks.silent == {}
            assert set(node.listeners) >= set(LISTENERS)
        finally:
            await node.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["kafka", "ydb", "http"])
def test_a_listener_that_accepts_and_does_not_answer_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_checks, "CHECK_TIMEOUT_S", 0.2)

    async def check(answer: bytes | None) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            checks = ListenerChecks({name: At("127.0.0.1", port)}, frozenset(), asyncio.get_running_loop().time)
            await checks.refresh(0.0)
            await checks.stop()
            return checks.silent[name]

    assert "no answer" in asyncio.run(check(None))
    assert asyncio.run(check(b""))
    assert asyncio.run(check(b"garbage that is longer than any head"))
