"""The policy for records that were deleted before a query read them: fail, or log a warning and continue."""

from __future__ import annotations

import logging
from typing import NamedTuple

from penstock.core.errors import PenstockError
from penstock.spark.errors import DataLossError

_log = logging.getLogger(__name__)


class LostDataPolicy(NamedTuple):
    """Whether lost data fails the query, and what its user calls the setting and the value that lets it go on."""

    fails: bool
    setting: str = "failOnDataLoss"
    tolerant_value: str = "false"

    def report(self, what: str, error: type[PenstockError] = DataLossError) -> None:
        """Raise `error`, or log a warning, as the policy says."""
        if self.fails:
            raise error(f"{what}. Set {self.setting} to {self.tolerant_value} to continue with what is left")
        _log.warning("%s; continuing with what is left, as %s is %s", what, self.setting, self.tolerant_value)
