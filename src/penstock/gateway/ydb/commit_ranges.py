"""Commits by ranges: the committed offset advances over contiguous ranges, in any order of arrival. Pure."""

from __future__ import annotations

from bisect import insort

from penstock.core.errors import InvalidRequestError

RANGES_MAX = 10_000


class TooManyRangesError(InvalidRequestError):
    """Too many ranges wait for an earlier one to be committed."""

    code = "too_many_commit_ranges"


class CommitRanges:
    """The committed offset, and the ranges beyond a gap after it."""

    def __init__(self, committed: int) -> None:
        self.committed = committed
        self._ahead: list[tuple[int, int]] = []  # sorted, not touching one another

    def add(self, start: int, end: int) -> bool:
        """Commit offsets start <= offset < end. Returns whether the committed offset advanced."""
        if end < start:
            raise InvalidRequestError(f"the range to commit ends at {end}, before its start {start}")
        if start > self.committed:
            if end > start:
                self._remember(start, end)
            return False
        before = self.committed
        self.committed = max(before, end)
        while self._ahead and self._ahead[0][0] <= self.committed:
            self.committed = max(self.committed, self._ahead.pop(0)[1])
        return self.committed > before

    def _remember(self, start: int, end: int) -> None:
        if len(self._ahead) >= RANGES_MAX:
            raise TooManyRangesError(f"{RANGES_MAX} ranges wait for offset {self.committed} to be committed; commit in order")
        insort(self._ahead, (start, end))
        joined: list[tuple[int, int]] = []
        for low, high in self._ahead:
            if joined and low <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], high))
            else:
                joined.append((low, high))
        self._ahead = joined
