"""The child process of a replay: its progress, and every way it can end."""

from __future__ import annotations

import asyncio
import sys

import pytest

from penstock.core.clock import SystemClock
from penstock.server.pipelines import ReplayStatus
from penstock.server.pipelines import dead_letter_replay as module
from penstock.server.pipelines.dead_letter_replay import DeadLetterReplay


def outcome(code: str) -> ReplayStatus:
    """How the replay by a program ends."""

    async def run() -> ReplayStatus:
        replay = DeadLetterReplay((sys.executable, "-c", code), {"file": {"path": "a.yaml"}}, SystemClock())
        await replay.run()
        return replay.status

    return asyncio.run(run())


def test_progress_is_noted_and_other_lines_are_not() -> None:
    status = outcome(
        "import json, sys\n"
        "assert json.load(sys.stdin)['file']['path'] == 'a.yaml'\n"
        """print('{"sent": 1, "total": 3}'); print('a warning'); print('{"replayed": 3}')"""
    )
    assert (status.state, status.replayed, status.total, status.error) == ("done", 3, 3, None)
    assert status.ended_ms is not None
    assert status.ended_ms >= status.started_ms


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("""print('{"sent": 1, "total": 3}'); print('{"error": "no broker"}')""", "no broker"),
        ("""print('{"sent": 1, "total": 3}'); raise SystemError('broken')""", "SystemError: broken"),
        ("""print('{"sent": 1, "total": 3}', flush=True); import os; os._exit(7)""", "exited with code 7"),
        ("""import sys; print('{"sent": 1, "total": 3}'); sys.exit('x' * 1_000_000 + '\\nthe last line')""", "the last line"),
    ],
)
def test_a_failure_says_why_and_how_far_it_was(code: str, error: str) -> None:
    status = outcome(code)
    assert (status.state, status.replayed) == ("failed", 1)
    assert error in (status.error or "")


def test_a_child_without_progress_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.2)
    status = outcome("import time; time.sleep(600)")
    assert (status.state, "no progress" in (status.error or "")) == ("failed", True)
