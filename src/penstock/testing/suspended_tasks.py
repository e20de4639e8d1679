"""Where tasks wait, read from the frames of the coroutines they are suspended in; and the end of those that never run again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
from collections.abc import Coroutine, Iterable, Iterator
from types import AsyncGeneratorType, FrameType
from typing import Any, cast

_BURIAL_ATTEMPTS_MAX = 20


def waiting_at(task: asyncio.Task[Any]) -> str:
    """The innermost line of the chain of awaits."""
    coro = task.get_coro()
    place = ""
    for frame in _frames(task):
        place = f" at {frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_qualname})"
    return f"{getattr(coro, '__qualname__', repr(coro))}{place}"


def functions_of(tasks: Iterable[asyncio.Task[Any]], layers: Iterable[str]) -> set[str]:
    """The functions of these layers that any of the tasks is in."""
    folders = [f"/penstock/{layer}/" for layer in layers]
    return {
        frame.f_code.co_qualname
        for task in tasks
        for frame in _frames(task)
        if any(folder in frame.f_code.co_filename for folder in folders)
    }


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """The frames of a task, from that of its coroutine to the innermost one."""
    node: object = task.get_coro()
    while node is not None:
        frame = getattr(node, "cr_frame", None) or getattr(node, "gi_frame", None) or getattr(node, "ag_frame", None)
        if frame is not None:
            yield frame
        node = getattr(node, "cr_await", None) or getattr(node, "gi_yieldfrom", None) or getattr(node, "ag_await", None)


def discard(task: asyncio.Task[Any]) -> None:
    """Close a frozen coroutine for good, however often it answers with another await, so that its end warns of nothing. What it
    waits for through an async generator is closed first: the end of that would not reach it."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    chain: list[object] = []
    node: object = task.get_coro()
    while node is not None:
        chain.append(node)
        generator = [held for held in gc.get_referents(node) if isinstance(held, AsyncGeneratorType)]
        inner = getattr(node, "cr_await", None) or getattr(node, "gi_yieldfrom", None) or getattr(node, "ag_await", None)
        # The step of an async generator tells nothing of it.
        node = (
            inner if inner is not None or not type(node).__name__.startswith("async_generator_") else next(iter(generator), None)
        )
    for coro in reversed(chain[1:]):
        if inspect.iscoroutine(coro):
            _close(coro)
    _close(cast("Coroutine[Any, Any, Any]", chain[0]))


def _close(coro: Coroutine[Any, Any, Any]) -> None:
    for _ in range(_BURIAL_ATTEMPTS_MAX):
        # What closes an async generator is awaitable too, but no coroutine: it is closed once and for all.
        if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) in (inspect.CORO_CLOSED, inspect.CORO_RUNNING):
            return
        with contextlib.suppress(BaseException):
            coro.close()
