"""How long we may believe in a lease, by our own clock.

The store counts a lease from the moment a renewal reaches it, we from the moment we send it, and we stop a tenth earlier. So
our belief ends before the store deletes the keys, whatever the answer took; clocks need only run at about the same speed.
"""

from __future__ import annotations

from typing import Final

MARGIN: Final = 0.1
RENEWALS: Final = 3
"""Renewals that are sent within the length of a lease when all is well."""
RETRY_S: Final = 0.1
RENEWAL_TIMEOUT_S_MIN: Final = 0.3


def renewal_timeout_s(ttl_s: float) -> float:
    """How long one attempt to renew may take, so that several endpoints can be tried before the lease ends."""
    return max(RENEWAL_TIMEOUT_S_MIN, ttl_s / 6)


class LeaseClock:
    """The length of a lease and when it was last extended for certain."""

    def __init__(self, ttl_s: float, sent_at: float) -> None:
        self.ttl_s = ttl_s
        self._extended_at = sent_at
        self._failed_at: float | None = None

    @property
    def believed_until(self) -> float:
        """From this time on the lease may have ended."""
        return self._extended_at + self.ttl_s * (1 - MARGIN)

    def is_believed(self, now: float) -> bool:
        """Whether the lease lives for certain."""
        return now < self.believed_until

    def note_renewed(self, sent_at: float, ttl_s: float) -> None:
        """A renewal that was sent then was answered."""
        self.ttl_s = ttl_s
        self._extended_at = max(self._extended_at, sent_at)
        self._failed_at = None

    def note_failed(self, now: float) -> None:
        """A renewal was not answered in time."""
        self._failed_at = now

    def wait_s(self, now: float) -> float:
        """How long to wait until the next renewal: a third of the lease, or little after one that failed."""
        due = self._extended_at + self.ttl_s / RENEWALS
        if self._failed_at is not None:
            due = max(due, self._failed_at + RETRY_S)
        return max(0.0, due - now)
