"""Where tasks wait, read from the frames of the coroutines they are suspended in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any


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
