"""The examples of clients do what their page says, each built and run as the page tells, where its language is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.running_node import running_node

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "clients"
# What building leaves behind is kept between runs, outside of the examples.
BUILD = ROOT / "build" / "examples"
BUILD_S = 1200
CONSUMED = ["consumed ada: tea", "consumed bob: coffee", "consumed ada: cake"]


def _run(argv: list[str], folder: Path, variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False, env={**os.environ, **(variables or {})}
    )
    assert done.returncode == 0, (argv, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def _copied(name: str, tool: str) -> Path:
    """An example where it can be built; skips the test if the machine has no tool for its language."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    folder = BUILD / name
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)
    return folder


def _check(tmp_path: Path, argv: list[str], folder: Path, *, address_as: str = "argument", group: str) -> None:
    """Run an example against a new node: it produces three messages, consumes them in order, and its group has no lag."""
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        argv = [word.replace("BOOTSTRAP", node.bootstrap) for word in argv]
        printed = _run(argv, folder, {"BOOTSTRAP": node.bootstrap} if address_as == "variable" else None)
        lines = [line.rpartition("\x1b[0m")[2] for line in printed.splitlines()]
        assert sorted(line for line in lines if line.startswith("produced")) == [
            f"produced to partition 0 at offset {offset}" for offset in range(3)
        ]
        assert [line for line in lines if line.startswith("consumed")] == CONSUMED
        assert json.loads(node.ok("group", "describe", group, "-o", "json"))[0]["lag"] == 0


def test_python(tmp_path: Path) -> None:
    _check(tmp_path, [sys.executable, "orders.py", "BOOTSTRAP"], EXAMPLES / "python", group="shipping-python")


@pytest.mark.soak
@pytest.mark.timeout(BUILD_S)
def test_java(tmp_path: Path) -> None:
    folder = _copied("java", "mvn")
    _check(tmp_path, ["mvn", "-q", "-B", "compile", "exec:java", "-Dexec.args=BOOTSTRAP"], folder, group="shipping-java")


@pytest.mark.soak
@pytest.mark.timeout(BUILD_S)
def test_spring(tmp_path: Path) -> None:
    folder = _copied("spring", "mvn")
    _check(tmp_path, ["mvn", "-q", "-B", "spring-boot:run"], folder, address_as="variable", group="shipping-spring")


@pytest.mark.soak
@pytest.mark.timeout(BUILD_S)
def test_go(tmp_path: Path) -> None:
    _check(tmp_path, ["go", "run", ".", "BOOTSTRAP"], _copied("go", "go"), group="shipping-go")


@pytest.mark.soak
@pytest.mark.timeout(BUILD_S)
def test_node(tmp_path: Path) -> None:
    folder = _copied("node", "npm")
    _run(["npm", "install", "--silent"], folder)
    _check(tmp_path, ["node", "orders.js", "BOOTSTRAP"], folder, group="shipping-node")


@pytest.mark.soak
@pytest.mark.timeout(BUILD_S)
def test_rust(tmp_path: Path) -> None:
    _check(tmp_path, ["cargo", "run", "--quiet", "BOOTSTRAP"], _copied("rust", "cargo"), group="shipping-rust")
