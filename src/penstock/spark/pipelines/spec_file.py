"""Reading the file of a pipeline: YAML with the line of every field, or Python that makes the same by `Pipeline({...})`."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from penstock.spark.pipelines.errors import SpecError, SpecFault
from penstock.spark.pipelines.spec import Origin


class Pipeline:
    """A pipeline declared in Python: the same fields as in YAML, and `transform.python` may be a function."""

    def __init__(self, declaration: Mapping[str, Any]) -> None:
        self.declaration = dict(declaration)


class Declaration(NamedTuple):
    """What a file holds, unchecked."""

    fields: Any
    origin: Origin


def read_file(path: str) -> Declaration:
    """What a file declares; SpecError with its line if it cannot even be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise SpecError([SpecFault(path, 1, "", f"cannot be read: {reason}; `penstock pipeline init` writes one")]) from error
    return _read_python(path, text) if path.endswith(".py") else read_yaml(path, text)


def read_yaml(path: str, text: str) -> Declaration:
    """A declaration in YAML."""
    import yaml

    lines: dict[str, int] = {}
    faults: list[SpecFault] = []
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise SpecError([SpecFault(path, 1, "", "it is empty; `penstock pipeline init` writes one to begin with")])
        fields = _value(loader, node, "", Origin(path, lines), faults)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"this is not YAML: {error.problem or error}"
        raise SpecError([SpecFault(path, mark.line + 1 if mark else 1, "", what)]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError([SpecFault(path, 1, "", f"this is not YAML: {error}")]) from error
    finally:
        loader.dispose()
    if faults:
        raise SpecError(faults)
    return Declaration(fields, Origin(path, lines))


def _value(loader: Any, node: Any, at: str, origin: Origin, faults: list[SpecFault]) -> Any:
    """The value of a node, the lines of everything in it noted."""
    lines: dict[str, int] = origin.lines  # type: ignore[assignment] # it is being filled
    lines.setdefault(at, node.start_mark.line + 1)
    if node.id == "scalar":
        return loader.construct_object(node)
    if node.id == "sequence":
        return [_value(loader, item, f"{at}[{number}]", origin, faults) for number, item in enumerate(node.value)]
    fields: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        inner = f"{at}.{key}" if at else key
        line = key_node.start_mark.line + 1
        if key in fields:
            faults.append(
                SpecFault(origin.file, line, inner, f"it is there twice, first in line {lines[inner]}; keep one of them")
            )
            continue
        lines[inner] = line
        fields[key] = _value(loader, value_node, inner, origin, faults)
    return fields


def _read_python(path: str, text: str) -> Declaration:
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        raise SpecError([SpecFault(path, error.lineno or 1, "", f"this is not Python: {error.msg}")]) from error
    module = load_module(path)
    pipeline = getattr(module, "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        what = "it must set `pipeline = Pipeline({...})`, with Pipeline from penstock.spark.pipelines"
        raise SpecError([SpecFault(path, 1, "pipeline", what)])
    return Declaration(pipeline.declaration, Origin(path, _python_lines(tree)))


def load_module(path: str) -> Any:
    """The module of a file, under a name of its own; the same one when asked again. SpecError if it fails."""
    where = Path(path).resolve()
    name = f"penstock_pipeline_{sha256(str(where).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, where)
    if spec is None or spec.loader is None:
        raise SpecError([SpecFault(path, 1, "", "it is no file of Python")])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise SpecError(
            [SpecFault(path, _line_of(error, str(where)), "", f"it fails: {type(error).__name__}: {error}")]
        ) from error
    return module


def _line_of(error: BaseException, path: str) -> int:
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _python_lines(tree: ast.Module) -> dict[str, int]:
    """The lines of fields that are written out in the call that makes `pipeline`."""
    lines: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Pipeline":
            lines[""] = node.lineno
            for argument in node.args[:1]:
                _note_lines(argument, "", lines)
    return lines


def _note_lines(node: ast.expr, at: str, lines: dict[str, int]) -> None:
    lines.setdefault(at, node.lineno)
    if isinstance(node, ast.List | ast.Tuple):
        for number, item in enumerate(node.elts):
            _note_lines(item, f"{at}[{number}]", lines)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                inner = f"{at}.{key.value!s}" if at else str(key.value)
                lines[inner] = key.lineno
                _note_lines(value, inner, lines)
