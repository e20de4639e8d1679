"""The parts of the house style that a linter does not know: sizes, names, promises left in comments, and what nothing uses."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 50
EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"})
PROMISE = re.compile(r"\b(TODO|FIXME|XXX)\b")

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

# What nothing in `src` uses yet, or by name, and why it stays. A path stands for every name in it.
KEPT: Final = {
    "penstock/kafka/protocol/errors.py": "Kafka's list of error codes, complete",
    "penstock/kafka/protocol/share_groups.py": "the messages of share groups, which come next",
    "penstock/kafka/client/asyncio_network.py": "the client of nodes that talk to each other, which come next",
    "penstock/blob/controller.py": "the controller of dynamic groups on one node, as the seed of BlobStorage has it",
    "penstock/coordination": "what the nodes of a cluster agree by; tablets on several nodes come next",
    "penstock/blob/remote_link.py": "VDisks on other nodes; a group over nodes has them among its links",
    "penstock/blob/vdisk_service.py": "the other side of it",
    "penstock/interconnect": "the calls between nodes; VDisks on other nodes are behind it",
    "penstock/minitoolstream/__init__.py": "the messages of MiniToolStream, complete",
    "penstock/testing": "for simulations and tests",
    "penstock/spark/tables/files.py:writable": "asked by the libraries that write to the object, which is like a file",
}
# Words of our own that a reader has to decode, in names and in texts.
AVOIDED: Final = re.compile(r"anew|whoever|nobody|likewise|under_way|let_go|(held|hold)_back|of_late|keep_no_more|tidy|bury")
AVOIDED_IN_TEXT: Final = re.compile(
    r"\b(anew|whoever|nobody|likewise|of late|under way|let(s|ting)? go|(held|holds?|holding) back|tid(y|ies|ied|ying)"
    r"|bur(y|ies|ied))\b",
    re.IGNORECASE,
)
TEXTS: Final = ("*.py", "*.md", "*.ts", "*.tsx", "*.lua", "*.yml", "*.yaml", "*.toml", "*.json", "*.go", "*.js")
NAMES_AVOIDED_WORDS: Final = frozenset({"docs/glossary.md", "tests/unit/test_tidy.py"})

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


def test_every_module_is_used() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    imported = {name for source in sources.values() for name in _imports(source)}
    # Commands, messages and kinds of pipelines are imported by names that stand in the code, whole or in part.
    texts = {path: _strings(source) for path, source in sources.items()}
    named = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in ("pyproject.toml", "Makefile"))
    unused = [
        _place(path)
        for path in sources
        if path.name not in ("__init__.py", "__main__.py")
        and (module := ".".join(path.relative_to(SOURCE).with_suffix("").parts)) not in imported
        and module not in named
        and not any(_names(texts[other], module, path) for other in sources if other != path)
        and not _is_kept(path)
        and '__name__ == "__main__"' not in sources[path]
    ]
    assert unused == [], "Nothing imports these: delete them, or say in KEPT why they stay."


def test_every_name_is_used() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    # A surface that only passes a name on does not use it.
    uses = Counter(
        word
        for path, source in sources.items()
        for word in IDENTIFIER.findall(source if path.name != "__init__.py" else _without_exports(source))
    )
    for folder in ("bench", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            uses.update(IDENTIFIER.findall(path.read_text(encoding="utf-8")))
    uses.update(IDENTIFIER.findall((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    unused = [
        f"{_place(path)}:{line} {name}"
        for path, source in sources.items()
        for name, line in _defined(ast.parse(source))
        if uses[name] <= 1 and not _is_kept(path, name)
    ]
    assert unused == [], "Nothing but tests uses these: delete them, or say in KEPT why they stay."


def test_every_option_is_read() -> None:
    """An option that is parsed and then ignored is worse than none."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    read = {name for source in sources.values() for name in re.findall(r"\.([a-z_]\w*)\b(?!\s*=[^=])", source)}
    ignored = [
        f"{_place(path)}:{field.lineno} {node.name}.{field.target.id}"
        for path, source in sources.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Options", "Config"))
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id not in read
    ]
    assert ignored == [], "Nothing reads these."


def test_unit_tests_are_in_the_folders_of_what_they_test() -> None:
    """What is about no single folder (pages, bench/, deploy/, the tree itself) is at the top."""
    unit = ROOT / "tests" / "unit"
    folders = {path.relative_to(unit).parent for path in unit.rglob("test_*.py")} - {Path(".")}
    assert not [str(folder) for folder in folders if not (SOURCE / "penstock" / folder).is_dir()]
    about_all = {"bench", "cli_reference", "compat_ledger", "deploy", "docs", "guarantees", "tidy"}
    assert {path.stem.removeprefix("test_") for path in unit.glob("test_*.py")} == about_all


def test_every_stored_sample_and_picture_is_used() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
    unused = [
        _place(path)
        for path in (ROOT / "tests" / "golden").glob("*.hex")
        if path.stem not in code and path.stem.rpartition("_")[0] + "_{" not in code
    ]
    unused += [_place(path) for path in (ROOT / "docs" / "images").iterdir() if path.name not in pages]
    assert unused == []


def test_names_are_words_of_the_field() -> None:
    strange = {
        f"{_place(path)}:{line} {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name, line in _bound(ast.parse(path.read_text(encoding="utf-8")))
        if AVOIDED.search(re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower())
    }
    assert not strange, "The glossary has the field's words: in flight, throttle, release, delete, retry."


def test_texts_are_in_words_of_the_field() -> None:
    folders = ("src", "tests", "bench", "docs", "examples", "deploy", "console/src")
    paths = [path for folder in folders for pattern in TEXTS for path in sorted((ROOT / folder).rglob(pattern))]
    strange = [
        f"{_place(path)}:{number} {line.strip()}"
        for path in [*paths, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
        if _place(path) not in NAMES_AVOIDED_WORDS and {"node_modules", "static", "docs_static"}.isdisjoint(path.parts)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if AVOIDED_IN_TEXT.search(line)
    ]
    _report(strange, "A reader from Kafka or databases should meet words they know: see the first table of docs/glossary.md.")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f():\n    pass\n", ["f"]),
        ("LIMIT: int = 1\nother = 2\n", ["LIMIT", "other"]),
        ("class C:\n    def m(self): pass\n    def _n(self): pass\n", ["C", "m"]),
        ("class C(Protocol):\n    def m(self): pass\n", ["C", "m"]),
        ("class C(asyncio.Protocol):\n    def connection_made(self): pass\n", ["C"]),
        ("@atexit.register\ndef f(): pass\n", []),
    ],
)
def test_names_that_someone_should_use(source: str, names: list[str]) -> None:
    assert [name for name, _ in _defined(ast.parse(source))] == names


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


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _strings(source: str) -> set[str]:
    return {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _names(strings: set[str], module: str, path: Path) -> bool:
    stems = {path.stem, path.stem.replace("_", "-")}  # a command has dashes where its module has underscores
    return bool(stems & strings) or any(re.split(r":|\.(?=[A-Z])", text)[0] == module for text in strings)


def _without_exports(source: str) -> str:
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom | ast.Assign)]
    return ast.unparse(tree)


def _defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What a module defines for others: its names, and the public methods of its classes, but not those that a library calls."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not (isinstance(node, Function) and node.decorator_list):
            yield node.name, node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, node.lineno) for target in targets if isinstance(target, ast.Name) and target.id[:2] != "__")
        if isinstance(node, ast.ClassDef) and not _is_of_library(node, tree):
            for method in node.body:
                if isinstance(method, Function) and method.name[0] != "_" and not _is_override(method):
                    yield method.name, method.lineno


def _is_of_library(kind: ast.ClassDef, tree: ast.Module) -> bool:
    """Whether a class has a base that is neither ours nor one of the standard forms."""
    ours = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("penstock", "typing", "abc", "enum")
        for alias in node.names
    }
    local = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    bases = (ast.unparse(base).partition("[")[0] for base in kind.bases)
    return any(base not in ours | local | {"NamedTuple", "Protocol", "ABC"} for base in bases)


def _is_override(method: Function) -> bool:
    return any("override" in ast.unparse(decorator) for decorator in method.decorator_list)


def _bound(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def _is_kept(path: Path, name: str = "") -> bool:
    place = str(path.relative_to(SOURCE))
    return any(place == kept or place.startswith(f"{kept}/") or f"{place}:{name}" == kept for kept in KEPT)


def _place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _report(found: list[str], rule: str) -> None:
    if found:
        pytest.fail("\n  ".join([rule, *found]), pytrace=False)
