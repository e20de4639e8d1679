from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.core.probe import Span

COMPILED: Final[bool]
NOTHING_TO_READ: Final = -1

class FetchedPartition:
    topic: str | bytes
    index: int
    key: tuple[str | bytes, int]
    offset: int
    size_max: int
    leader_epoch: int
    last_epoch: int
    partition: Any
    shows_all: bool
    until: int
    error_code: int
    high_watermark: int
    stable_offset: int
    start_offset: int
    diverging: tuple[int, int] | None
    aborted: Sequence[tuple[int, int, int]] | None
    records: Sequence[Any] | None
    size: int
    def __init__(
        self,
        topic: str | bytes,
        index: int,
        offset: int = 0,
        size_max: int = 0,
        leader_epoch: int = -1,
        last_epoch: int = -1,
    ) -> None: ...
    def change(self, other: FetchedPartition) -> None: ...
    def copy(self) -> FetchedPartition: ...
    def reset(self) -> None: ...
    def fail(self, code: int) -> None: ...
    def fill(self, records: Sequence[Any], size: int) -> None: ...
    def look(self, route: Any, is_committed: bool) -> bool: ...

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
