"""`penstock demo` as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_demo_ends_by_itself_and_everything_holds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "demo", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything held." in done.stdout
    assert "FAILED" not in done.stdout
