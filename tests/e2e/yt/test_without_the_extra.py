"""A node that is asked for the YT listener without what it needs says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.running_node import environment

STARTS = """
import sys
sys.modules["aiohttp"] = None
from penstock.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_missing_extra_is_named(tmp_path: Path) -> None:
    argv = ["up", "--data-dir", str(tmp_path / "data"), "--kafka-port", "none", "--yt-port", "0"]
    done = subprocess.run(
        [sys.executable, "-c", STARTS, *argv], capture_output=True, timeout=60, check=False, env=environment(), text=True
    )
    assert done.returncode == 2
    assert "pip install 'penstock[yt]'" in done.stderr
