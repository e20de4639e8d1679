"""Static groups as configuration describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.blob import Erasure, static_group
from penstock.core.errors import ConfigError


def test_a_group_is_read_with_its_directories_below_the_base() -> None:
    disks = [f"disk{number}" for number in range(8)]
    config = static_group({"id": 3, "erasure": "block-4-2", "disks": disks}, Path("/data"))
    assert (config.id, config.erasure, config.generation) == (3, Erasure.BLOCK_4_2, 1)
    assert config.disks[7] == Path("/data/disk7")
    assert config.vdisk_directory(7) == Path("/data/disk7/00000003-0-7-0")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"disks": ["a"], "erasure": "raid"}, "unknown erasure 'raid'"),
        ({"disks": ["a", "b"]}, "needs 1 disks, 2 are given"),
        ({"disks": ["a"], "size": 3}, "unknown key 'size'"),
        ({"disks": "a"}, "must be a list of directories"),
        ({"disks": ["a"], "id": -1}, "`id` is -1"),
        ({"disks": ["a"], "id": 0x82000000}, "`id` is"),
        ({"disks": ["a"] * 8, "erasure": "block-4-2"}, "named twice"),
    ],
)
def test_a_wrong_group_is_refused_with_what_is_wrong(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        static_group(mapping)
