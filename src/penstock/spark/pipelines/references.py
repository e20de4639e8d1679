"""References in a pipeline's file to what must not be written into it: `${NAME}` is a variable of the environment, `${file:PATH}`
the content of a file, `$${` a plain `${`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_REFERENCE: Final = re.compile(r"\$(\$)?\{([^}]*)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILE: Final = "file:"


class UnresolvedError(ValueError):
    """A reference cannot be resolved; the message names it, and never a value."""


def resolve(text: str, directory: Path, *, quoted: bool = False) -> str:
    """The text with its references replaced; paths are relative to `directory`. With `quoted`, values that stand within a longer
    text are escaped for the double quotes around them."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        found = _look_up(match[2], directory)
        if quoted and match[0] != text.strip():
            found = found.replace("\\", "\\\\").replace('"', '\\"')
        return found

    return _REFERENCE.sub(value, text)


def _look_up(name: str, directory: Path) -> str:
    if name.startswith(FILE):
        path = (directory / Path(name.removeprefix(FILE)).expanduser()).absolute()
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise UnresolvedError(f"${{{name}}}: {path} cannot be read: {reason}") from None
    if not _VARIABLE.fullmatch(name):
        raise UnresolvedError(f"${{{name}}} is neither ${{NAME}} of a variable nor ${{file:PATH}}; write $${{ for a plain ${{")
    if name not in os.environ:
        raise UnresolvedError(f"the environment has no variable {name}; set it where the pipeline runs")
    return os.environ[name]
