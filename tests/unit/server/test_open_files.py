"""The limit of open files, each time in a process of its own: a limit that was lowered stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import logging, resource, sys
from penstock.server.open_files import open_files_limit, raise_open_files
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, 512))
raise_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], open_files_limit())
"""


@pytest.mark.parametrize(("soft", "said"), [(200, ["the limit of open files is raised from 200 to 512"]), (512, [])])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, said: list[str]) -> None:
    program = PROGRAM.replace("SOFT", str(soft))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [*said, "512 512"]
