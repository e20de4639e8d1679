"""`penstock completion` in the shells it is for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.debian_tools import NotAvailableError, unpacked_tool
from tests.e2e.running_node import penstock, running_node

BASH = """
source {script}
COMP_WORDS=({words} "{last}")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_penstock
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# Without a terminal there is no line editor; what would be handed to it is printed instead.
ZSH = """
module_path+=(${{${{(s.:.)LD_LIBRARY_PATH}}:h}})
compdef() {{ :; }}
compadd() {{ while [[ $1 == -* && $1 != -- ]]; do shift; done; shift; print -rl -- "$@"; }}
_describe() {{ local name=$argv[-1]; print -rl -- ${{${{(P)name}}%%:*}}; }}
_files() {{ print -rl -- files "$@"; }}
source {script}
words=({words} "{last}")
CURRENT=$#words
_penstock
"""
CASES = [
    ("penstock", "to", {"topic"}, {"up"}),
    ("penstock topic", "", {"create", "list", "trim"}, {"--bootstrap"}),
    ("penstock topic create", "--part", {"--partitions"}, {"create"}),
    ("penstock up --erasure", "", {"none", "mirror-3", "block-4-2", "mirror-3-dc"}, {"--erasure"}),
    ("penstock consume clicks --format", "", {"text", "json"}, {"--format"}),
    ("penstock completion", "", {"bash", "zsh", "fish"}, {"up"}),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        done = penstock("completion", shell)
        assert done.returncode == 0, done.stderr
        (folder / shell).write_bytes(done.stdout)
    return folder


def _run(argv: list[str], variables: dict[str, str] | None = None) -> set[str]:
    # The scripts ask `penstock` for names of topics: ours comes first.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", **(variables or {})}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(("words", "last", "offered", "not_offered"), CASES)
def test_bash_completes(scripts: Path, words: str, last: str, offered: set[str], not_offered: set[str]) -> None:
    found = _run(["bash", "--norc", "-c", BASH.format(script=scripts / "bash", words=words, last=last)])
    assert offered <= found
    assert not not_offered & found


def test_bash_completes_files_and_directories(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "file.toml").touch()
    (tmp_path / "folder").mkdir()
    ask = BASH.format(script=scripts / "bash", words="penstock up --config", last=f"{tmp_path}/f")
    assert _run(["bash", "--norc", "-c", ask]) == {f"{tmp_path}/file.toml", f"{tmp_path}/folder"}
    ask = BASH.format(script=scripts / "bash", words="penstock up --data-dir", last=f"{tmp_path}/f")
    assert _run(["bash", "--norc", "-c", ask]) == {f"{tmp_path}/folder"}


def test_bash_completes_names_of_topics_from_a_running_node(scripts: Path, tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data")]) as node:
        node.ok("topic", "create", "clicks", "orders")
        ask = BASH.format(script=scripts / "bash", words="penstock consume", last="")
        assert _run(["bash", "--norc", "-c", ask], {"PENSTOCK_BOOTSTRAP": node.bootstrap}) == {"clicks", "orders"}


@pytest.mark.parametrize(("words", "last", "offered", "not_offered"), CASES)
def test_zsh_offers(scripts: Path, words: str, last: str, offered: set[str], not_offered: set[str]) -> None:
    try:
        zsh = unpacked_tool("zsh")
    except NotAvailableError as error:
        pytest.skip(str(error))
    ask = ZSH.format(script=scripts / "zsh", words=words, last=last)
    found = _run([str(zsh.program), "-f", "-c", ask], dict(zsh.variables))
    assert offered <= found
    assert not (not_offered & found) - {"up"}  # zsh itself picks those that begin as the word does


@pytest.mark.parametrize(("words", "last", "offered", "not_offered"), CASES)
def test_fish_completes(scripts: Path, words: str, last: str, offered: set[str], not_offered: set[str]) -> None:
    try:
        fish = unpacked_tool("fish")
    except NotAvailableError as error:
        pytest.skip(str(error))
    ask = f"source {scripts / 'fish'}; complete -C '{words} {last}'"
    found = _run([str(fish.program), "--no-config", "-c", ask], dict(fish.variables))
    assert offered <= found
    assert not not_offered & found
