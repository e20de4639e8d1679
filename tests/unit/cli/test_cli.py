"""The `penstock` command: what it answers before any subcommand runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock import __version__
from penstock.cli.main import main


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["--version"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


@pytest.mark.parametrize("argv", [["no-such-command"], ["--no-such-option"]])
def test_wrong_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(argv)
    assert exit_info.value.code == 2
    assert "usage: penstock" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module",
    [
        "penstock.cli.main",
        "penstock.cli.topic",
        "penstock.cli.produce",
        "penstock.cli.consume",
        "penstock.cli.topic_actions",
        "penstock.cli.producer",
        "penstock.cli.consumer",
        "penstock.cli.completion",
        "penstock.cli.demo",
        "penstock.cli.doctor",
        "penstock.cli.pipeline",
    ],
)
def test_start_imports_nothing_heavy(module: str) -> None:
    """Start time is kept by what is not imported; a clock would make this test depend on the machine."""
    heavy = {"asyncio", "numpy", "uvloop", "penstock.blob"}
    script = f"import sys, {module}; print(*sorted({heavy!r} & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert not loaded, f"{module} imports {loaded}; import them where they are needed"
