"""Which endpoint to ask next: the one that answered last, until it fails; then the others in turn. No I/O."""

from __future__ import annotations

from collections.abc import Callable


class EndpointChoice:
    """The order of endpoints. Those that failed lately come last, the longest ago first."""

    def __init__(self, count: int, first: int = 0) -> None:
        self._order = [(first + number) % count for number in range(count)]

    @property
    def current(self) -> int:
        """The endpoint to ask."""
        return self._order[0]

    def prefer(self, is_ready: Callable[[int], bool]) -> int | None:
        """The first endpoint that is ready, which becomes the current one; None if none is."""
        for endpoint in self._order:
            if is_ready(endpoint):
                self._order.remove(endpoint)
                self._order.insert(0, endpoint)
                return endpoint
        return None

    def note_failed(self, endpoint: int) -> None:
        """An endpoint did not answer; ask another. Several calls that failed at one endpoint move on once."""
        if self._order[0] == endpoint:
            self._order.append(self._order.pop(0))
