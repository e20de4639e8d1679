from collections.abc import Mapping
from typing import Any, Final

from penstock.core.probe import Span
from penstock.kernels.fetched_partition import FetchedPartition

COMPILED: Final[bool]

class FetchFrame:
    version: int
    correlation_id: int
    client_id: str | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_committed: bool
    session_id: int
    session_epoch: int
    parts: list[FetchedPartition]
    forgotten: list[tuple[str | bytes, int]]
    readable: list[FetchedPartition]
    size: int
    is_done: bool
    is_refused: bool
    must_close: bool
    has_files: bool
    waited_s: float
    span: Span | None
    poll: FetchFrame | None
    endpoints: bytes | None
    def begin(self) -> None: ...
    def parse(self, buffer: bytearray, begin: int, end: int) -> bool: ...
    def look(self, routes: Mapping[tuple[str | bytes, int], Any]) -> list[FetchedPartition] | None: ...
    def watch(self) -> None: ...
    def unwatch(self) -> None: ...
    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def cancel(self) -> None: ...
    def told(self) -> None: ...
    def held(self) -> int: ...
    def sum_up(self) -> None: ...
    def reply(
        self,
        session_id: int = 0,
        has_session: bool = False,
        is_incremental: bool = False,
        error_code: int = 0,
        throttle_time_ms: int = 0,
    ) -> tuple[list[Any], int]: ...
