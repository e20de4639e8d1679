"""Kernels and typed modules as a whole."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.kernels
from penstock.kernels import kernel_names, plain_kernels
from tests.typed_modules import PLAIN, typed_modules


def test_kernels_are_compiled_where_tests_run() -> None:
    assert "produce_frame" in kernel_names()
    assert plain_kernels() == []


@pytest.mark.skipif(PLAIN in os.environ, reason="they are not to be compiled")
def test_typed_modules_are_compiled_where_tests_run() -> None:
    modules = typed_modules()
    assert "penstock.tablet.sequencer" in modules
    assert [name for name in modules if (importlib.import_module(name).__file__ or "").endswith(".py")] == []


def test_a_kernel_without_a_compiled_file_is_told(tmp_path: Path) -> None:
    package = Path(penstock.kernels.__file__).parent
    script = "import penstock.kernels as k, sys; k.__path__ = sys.argv[1:]; print(k.plain_kernels())"
    for file in package.glob("*.py"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "'row_pack'" in run.stdout
