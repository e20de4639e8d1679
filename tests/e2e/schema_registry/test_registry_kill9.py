"""kill -9 of a node between registrations and their answers."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from urllib.error import URLError

from tests.e2e.running_node import running_node

SCHEMAS = 2000
KILL_AFTER = 30


def _schema(number: int) -> str:
    return json.dumps({"type": "fixed", "name": "F", "size": number})


def _register(url: str, number: int) -> int:
    body = json.dumps({"schema": _schema(number)}).encode()
    request = urllib.request.Request(
        f"{url}/subjects/s-{number % 7}/versions", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return int(json.loads(response.read())["id"])


def test_no_schema_has_two_ids_and_no_id_two_schemas_after_kill_9(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--schema-registry-port", "0"]
    told: dict[int, int] = {}
    enough = threading.Event()
    with running_node(tmp_path / "log", argv) as node:
        url = f"http://127.0.0.1:{node.ready['listeners']['schema_registry']['port']}"
        for subject in range(7):
            _set_level(url, f"s-{subject}")

        def register(first: int) -> None:
            for number in range(first, SCHEMAS, 3):
                try:
                    told[number] = _register(url, number)
                except (OSError, URLError):
                    return
                if len(told) >= KILL_AFTER:
                    enough.set()

        threads = [threading.Thread(target=register, args=(first,)) for first in range(3)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        node.kill()
        for thread in threads:
            thread.join()
    with running_node(tmp_path / "log", argv) as node:
        url = f"http://127.0.0.1:{node.ready['listeners']['schema_registry']['port']}"
        ids = {number: _register(url, number) for number in range(max(told) + 6)}
        assert {number: ids[number] for number in told} == told
        assert len(set(ids.values())) == len(ids)


def _set_level(url: str, subject: str) -> None:
    request = urllib.request.Request(
        f"{url}/config/{subject}", b'{"compatibility":"NONE"}', {"Content-Type": "application/json"}, method="PUT"
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200
