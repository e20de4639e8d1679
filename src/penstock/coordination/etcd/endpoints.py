"""Which endpoint to ask next: the one that answered last, until it fails; then the others in turn. No I/O."""

from __future__ import annotations


class EndpointChoice:
    """The order of endpoints. Those that failed lately come last, the longest ago first."""

    def __init__(self, count: int, first: int = 0) -> None:
        self._order = [(first + number) % count for number in range(count)]

    @property
    def current(self) -> int:
        """The endpoint to ask."""
        return self._order[0]

    def note_failed(self, endpoint: int) -> None:
        """An endpoint did not answer; ask another. Several calls that failed at one endpoint move on once."""
        if self._order[0] == endpoint:
            self._order.append(self._order.pop(0))
