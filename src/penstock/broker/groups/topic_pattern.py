"""Regular expressions over topic names: RE2, as KIP-848 asks, so that no pattern takes more than linear time to match."""

from __future__ import annotations

from typing import Final

import re2

from penstock.core.errors import InvalidRequestError

PATTERN_SIZE_MAX: Final = 4096
# What one compiled pattern may take; RE2 refuses what needs more.
PATTERN_MEMORY_MAX: Final = 1 << 20


class InvalidPatternError(InvalidRequestError):
    """A regular expression that RE2 does not accept, or that is too large."""

    code = "invalid_regular_expression"


class TopicPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_SIZE_MAX:
            raise InvalidPatternError(f"a pattern of {len(pattern)} characters; at most {PATTERN_SIZE_MAX} are allowed")
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = PATTERN_MEMORY_MAX
        try:
            self._compiled = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            reason = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else error
            raise InvalidPatternError(f"{pattern!r} is not a regular expression of RE2: {reason}") from error

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        return self._compiled.fullmatch(name) is not None
