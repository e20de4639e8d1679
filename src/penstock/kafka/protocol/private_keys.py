"""Keys of apis that are Penstock's own. Kafka numbers its keys from 0 upwards; these are far from any of them."""

from __future__ import annotations

from typing import Final

COMMIT_TOGETHER: Final = 30001
APPLICATION_RECORD: Final = 30002
FIND_PIECES: Final = 30003
TAKE_LEASE: Final = 30004
RENEW_LEASE: Final = 30005
RELEASE_LEASE: Final = 30006
