"""The parts of the house style that a linter does not know: sizes, names and promises left in comments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 50
EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"})
PROMISE = re.compile(r"\b(TODO|FIXME|XXX)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_modules_are_short() -> None:
    found = [
        f"{_place(path)} has {count} lines"
        for path in _modules(SOURCE)
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    ]
    _report(found, f"A module holds one idea, in {MODULE_LINES_MAX} lines at most: split by idea.")


def test_functions_are_short() -> None:
    found = [
        f"{_place(path)}:{function.lineno} {function.name}() has {count} lines"
        for path in _modules(SOURCE)
        for function in _functions(path.read_text(encoding="utf-8"))
        if (count := _body_lines(function)) > FUNCTION_LINES_MAX
    ]
    _report(found, f"A function does one job, in {FUNCTION_LINES_MAX} lines at most, its docstring aside: split by job.")


def test_names_say_what_is_inside() -> None:
    found = [
        _place(path)
        for folder in (SOURCE, ROOT / "tests", ROOT / "bench")
        for path in _modules(folder)
        if any(_is_empty_name(Path(part).stem) for part in path.relative_to(ROOT).parts)
    ]
    _report(found, f"A file or folder is named for the thing in it, never {', '.join(sorted(EMPTY_NAMES))}.")


def test_no_promises_in_comments() -> None:
    found = [
        f"{_place(path)}:{number} {line.strip()}"
        for path in _modules(SOURCE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if PROMISE.search(line)
    ]
    _report(found, "Do it now, or open an issue; the source holds no promises.")


def test_a_docstring_does_not_count_as_body() -> None:
    source = 'def f() -> int:\n    """One.\n\n    Two.\n    """\n    return 1\n'
    assert [_body_lines(function) for function in _functions(source)] == [2]


def test_methods_and_inner_functions_are_measured() -> None:
    source = "class C:\n    async def f(self) -> None:\n        def g() -> None:\n            pass\n        g()\n"
    assert {function.name: _body_lines(function) for function in _functions(source)} == {"f": 4, "g": 2}


@pytest.mark.parametrize(("name", "empty"), [("utils", True), ("blob_utils", True), ("manager", True), ("commonality", False)])
def test_an_empty_word_anywhere_in_a_name_is_found(name: str, empty: bool) -> None:
    assert _is_empty_name(name) is empty


def _modules(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.rglob("*.py")))


def _functions(source: str) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, Function))


def _body_lines(function: Function) -> int:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def _is_empty_name(name: str) -> bool:
    return not EMPTY_NAMES.isdisjoint(name.lower().split("_"))


def _place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _report(found: list[str], rule: str) -> None:
    if found:
        pytest.fail("\n  ".join([rule, *found]), pytrace=False)
