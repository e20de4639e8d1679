"""A kernel as plain Python, whether or not it was compiled: both forms are to give the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import penstock.kernels

BASES = ("frame_fields",)  # what others inherit, which they can from the same form only


def uncompiled(name: str) -> Any:
    """The kernel of this name, run from its source."""
    bases = {f"penstock.kernels.{base}": _from_source(base) for base in BASES}
    with patch.dict(sys.modules, bases):
        return _from_source(name)


def _from_source(name: str) -> Any:
    source = Path(penstock.kernels.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}_uncompiled", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.COMPILED is False
    return module
