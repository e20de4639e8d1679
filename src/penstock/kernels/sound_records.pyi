from typing import Final

COMPILED: Final[bool]

def sound_to(data: bytes, chunk: int, offset: int) -> int: ...
