from collections.abc import Sequence
from typing import Any, Final

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
    leader: tuple[int, int] | None
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
    def is_news(self) -> bool: ...
