from typing import Final

COMPILED: Final[bool]

def has_name(fd: int) -> bool: ...
