"""Someone who has never heard of Penstock types what the README says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.documented import ROOT, SHELLS, Block, Shell, blocks, commands

README = ROOT / "README.md"
SETUP = "make setup && . .venv/bin/activate"
# What does not end by itself, and what it prints when it works.
ENDLESS = {"penstock up": "penstock is ready", "penstock consume greetings --follow": "hello"}


def _shell_blocks() -> list[Block]:
    return [block for block in blocks(README) if block.language in SHELLS]


def _type(shell: Shell, line: str) -> None:
    if line in ENDLESS:
        shell.start(line, ENDLESS[line])
    else:
        shell.run(line)


def test_the_readme_works_in_this_environment(tmp_path: Path) -> None:
    """All but what takes long and has tests of its own: the set-up, the demo, a pipeline that would run for ever, a cluster."""
    typed = [line for block in _shell_blocks() for line in commands(block)]
    assert typed[:3] == ["make demo", SETUP, "penstock up"]
    with Shell(tmp_path) as shell:
        for line in typed[2:]:
            if not line.startswith(("penstock pipeline run", "penstock dev-cluster")):
                _type(shell, line)
        assert (tmp_path / "table.yaml").exists()
        shell.run("penstock pipeline validate table.yaml --offline")


def test_the_python_of_the_readme_compiles() -> None:
    for block in blocks(README):
        if block.language == "python":
            compile(block.body, "README.md", "exec")


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_the_readme_works_on_a_clean_clone(tmp_path: Path) -> None:
    """To the letter: a clone, its own environment, the demo, then a node and the first messages."""
    clone = tmp_path / "penstock"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
    # Nothing of the environment that the tests run in.
    for name in [name for name in os.environ if name.startswith(("PENSTOCK_", "VIRTUAL_ENV", "PYTHON"))]:
        del os.environ[name]
    demo, setup, first, *_ = _shell_blocks()[0], _shell_blocks()[1], _shell_blocks()[2]
    with Shell(clone) as shell:
        said = shell.run(demo.body, timeout=1800)
        assert "Nothing was lost, nothing duplicated." in said
        lines = list(commands(setup))
        assert lines == [SETUP, "penstock up"]
        shell.run(SETUP, timeout=1800)
        activate = f". {clone}/.venv/bin/activate"
        shell.start(f"bash -c '{activate} && exec penstock up'", ENDLESS["penstock up"])
        for line in commands(first):
            if line in ENDLESS:
                shell.start(f"bash -c '{activate} && exec {line}'", ENDLESS[line])
            else:
                shell.run(f"{activate} && {line}")


def test_the_demo_is_one_command_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^demo: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    *_, setup, demo = recipe[1].splitlines()
    assert setup == "\t@$(MAKE) --no-print-directory setup"
    assert demo == "\t$(BIN)/penstock demo $(ARGS)"
