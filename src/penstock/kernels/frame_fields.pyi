from typing import Final

COMPILED: Final[bool]

class FrameFields:
    version: int
    correlation_id: int
    client_id: str | None
