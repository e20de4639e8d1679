"""The pages hold together: links lead somewhere, commands are commands, and nothing is left out of the index."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from penstock.cli.main import COMMANDS, module_of
from tests.documented import PAGES, ROOT, SHELLS, Block, blocks, check_output, commands

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```[ \t]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FOLDERS = ("src", "tests", "bench", "examples", "deploy")
SOURCE_FILE = re.compile(r"`([\w./-]+\.py)`")
COMPUTED = re.compile(r"^\$\(.*\)$")  # what a shell puts in when the command runs
ENDS = ("|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1", "2>")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_resolve(page: Path) -> None:
    broken = []
    for match in LINK.finditer(CODE.sub("", page.read_text(encoding="utf-8"))):
        target = match[1] or match[2]
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            broken.append(target)
    assert broken == []


def _anchors(page: Path) -> set[str]:
    """The names that headings get: small letters, spaces as hyphens, most signs left out."""
    text = CODE.sub(lambda match: "" if match[0].startswith("```") else match[0].strip("`"), page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_named_source_files_exist(page: Path) -> None:
    names = set(SOURCE_FILE.findall(page.read_text(encoding="utf-8")))
    files = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")] if names else []
    assert sorted(name for name in names if not any(file.endswith(f"/{name}") for file in files)) == []


def test_only_one_page_says_how_to_install() -> None:
    """There is no release yet, so no page may send readers to a package index."""
    saying = [_name(page) for page in PAGES if re.search(r"pip install '?penstock", page.read_text(encoding="utf-8"))]
    generated = ["docs/reference/cli.md", "docs/reference/configuration.md"]  # of messages where it is installed already
    assert sorted(set(saying) - set(generated)) == ["docs/how-to/install.md"]


def _calls() -> list[tuple[str, list[str]]]:
    """Every call of ours in every shell block: where it stands, and its words."""
    found = []
    for page in PAGES:
        for block in blocks(page):
            if block.language in SHELLS or block.language == "":
                for line in commands(block):
                    found += [(f"{_name(page)}:{block.line}: {line}", words) for words in _ours(line)]
    return found


def _ours(line: str) -> list[list[str]]:
    """The calls of `penstock` in a command line, without redirections and what they are piped into."""
    if "penstock " not in line:
        return []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return []  # not a shell line at all
    calls, at = [], 0
    while "penstock" in words[at:]:
        at = words.index("penstock", at) + 1
        end = next(
            (place for place in range(at, len(words)) if words[place] in ENDS or set(words[place]) <= set(";|&<>()")), len(words)
        )
        begins = (
            at == 1 or words[at - 2] in ENDS or words[at - 2] in ("do", "then", "until", "while", "exec") or "=" in words[at - 2]
        )
        if begins and at < end:
            calls.append(words[at:end])
    return calls


@pytest.mark.parametrize(("where", "words"), _calls(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_in_the_docs_parses(where: str, words: list[str]) -> None:
    command = words[0]
    if command in ("--version", "--help", "COMMAND"):
        return
    assert command in COMMANDS, f"{where}: there is no such command"
    # What stands for something else in a sentence is something that parses.
    argv = [COMPUTED.sub("1", word.replace("…", "x")) for word in words[1:] if word != "--help"]
    parser: argparse.ArgumentParser = import_module(module_of(command)).parser()
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parser.parse_args(argv)
        except SystemExit as end:
            pytest.fail(f"{where}: {said.getvalue()}") if end.code else None


def test_there_are_commands_to_check() -> None:
    assert len(_calls()) > 40


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / match[1].partition("#")[0]).resolve() for match in LINK.finditer(index.read_text()) if match[1]}
    missing = [_name(page) for page in PAGES if page.parent != ROOT and page != index and page.resolve() not in linked]
    assert missing == []


def test_the_page_of_client_examples_shows_their_files() -> None:
    examples = ROOT / "examples" / "clients"
    shown = {block.name: block.body for block in blocks(ROOT / "docs" / "how-to" / "client-examples.md") if block.name}
    assert len(shown) >= 6
    assert shown == {name: (examples / name).read_text(encoding="utf-8") for name in shown}


def test_both_readmes_have_the_same_commands() -> None:
    english, russian = ([list(commands(block)) for block in blocks(ROOT / name)] for name in ("README.md", "README.ru.md"))
    assert english == russian


def test_a_call_is_found_wherever_it_stands() -> None:
    line = "echo hello | penstock produce greetings && penstock consume greetings --count 1 > out"
    assert _ours(line) == [["produce", "greetings"], ["consume", "greetings", "--count", "1"]]


def test_commands_are_joined_and_remarks_left_out() -> None:
    assert list(commands(Block("sh", "", "a b \\\n  c  # why\n# only a remark\nd\n", 1))) == ["a b    c", "d"]


def test_printed_lines_are_compared_in_order() -> None:
    check_output("one … three\nfour\n", "zero\none two three\nfour\n", "here")
    with pytest.raises(AssertionError):
        check_output("four\none\n", "one\nfour\n", "here")
