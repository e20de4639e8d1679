"""How many files and connections this process may have open."""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

# What systems without a limit are asked for; Linux allows no more by default.
OPEN_FILES_MAX: Final = 1 << 20


def open_files_limit() -> int:
    """The limit that a node runs with: the hard one, since it raises the soft one to it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else hard


def raise_open_files() -> None:
    """Raise the soft limit, which is low for the sake of programs that call select(), to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = open_files_limit()
    if soft >= limit or soft == resource.RLIM_INFINITY:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays at %d: it cannot be raised to %d: %s", soft, limit, error)
    else:
        log.info("the limit of open files is raised from %d to %d", soft, limit)
