"""Work that is done again and again for as long as a node runs, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable


async def repeat(what: str, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
    """Do some work after each interval, until cancelled. If it fails for a reason that it does not handle itself, that is
    reported, and the work goes on after the next interval: a node must not do without it until it is started again."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - it is reported
            report_defect(f"{what} failed, and is tried again in {interval_s:g} s", error)


def report_defect(message: str, error: Exception) -> None:
    """Report an unexpected error to the event loop: it is logged with its traceback, and fails a simulation."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


async def cancel_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait for their end, whatever it is."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
