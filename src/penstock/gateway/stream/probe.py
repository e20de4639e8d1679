"""Counts the calls of stream clients."""

from __future__ import annotations

from typing import Final

from penstock.core.probe import RequestProbe

# Calls that last as long as their client wants, or as its payload takes.
_LONG_RUNNING: Final = frozenset(
    {"Subscribe", "Read", "Upload", "Download", "GET /streams/{subject}", "GET /streams/{subject}/{sequence}"}
)


class StreamProbe(RequestProbe):
    """Counts calls of both listeners."""

    __slots__ = ()

    def is_prompt(self, api: str) -> bool:
        return api not in _LONG_RUNNING
