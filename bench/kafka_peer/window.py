"""The window of a measurement: how long it was, and the processor time that the broker and the load generator took in it."""

from __future__ import annotations

import time

from bench.process_cpu import tree_cpu_s


class Window:
    """Opens when it is made. The load generator opens it once all its connections are up, so that only steady load counts.
    Without the id of the broker's process, only this process is watched."""

    def __init__(self, broker_pid: int | None) -> None:
        self._broker_pid = broker_pid
        self._broker_s = 0.0 if broker_pid is None else tree_cpu_s(broker_pid)
        self._load_s = time.process_time()
        self._started = time.perf_counter()

    def close(self, count: int) -> dict[str, float]:
        """The seconds, the broker's processor time a message, and the cores that the broker and this process were using."""
        seconds = time.perf_counter() - self._started
        measured = {"s": seconds, "load_cores": (time.process_time() - self._load_s) / seconds}
        if self._broker_pid is not None:
            broker_s = tree_cpu_s(self._broker_pid) - self._broker_s
            measured["broker_us"] = broker_s / max(count, 1) * 1e6
            measured["broker_cores"] = broker_s / seconds
        return measured


def percentiles(samples: list[float]) -> dict[str, float]:
    """The percentiles of samples in seconds, in microseconds."""
    ordered = sorted(samples)
    return {f"p{share:g}_us": ordered[int(len(ordered) * share / 100)] * 1e6 for share in (50, 99, 99.9)}
