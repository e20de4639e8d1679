"""The server: a configuration turned into a running node, and the order in which a node starts and stops.

`Node` itself is in penstock.server.node: importing it loads every layer below, which reading a configuration need not wait for.
"""

from penstock.server.config import NodeConfig, load_config
from penstock.server.errors import (
    BadSettingError,
    DirectoryInUseError,
    DirectoryMismatchError,
    DirectoryUnusableError,
    ListenError,
)
from penstock.server.setting import Setting
from penstock.server.settings import SETTINGS

__all__ = [
    "SETTINGS",
    "BadSettingError",
    "DirectoryInUseError",
    "DirectoryMismatchError",
    "DirectoryUnusableError",
    "ListenError",
    "NodeConfig",
    "Setting",
    "load_config",
]
