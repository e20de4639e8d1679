"""What is counted of stream clients' calls."""

from __future__ import annotations

from typing import Final

from penstock.core.probe import RequestProbe

# They last as long as their client wants, or as what it sends.
_LASTING: Final = frozenset(
    {"Subscribe", "Read", "Upload", "Download", "GET /streams/{subject}", "GET /streams/{subject}/{sequence}"}
)


class StreamProbe(RequestProbe):
    """The calls of stream clients, over gRPC and over HTTP."""

    __slots__ = ()

    def is_prompt(self, api: str) -> bool:
        return api not in _LASTING
