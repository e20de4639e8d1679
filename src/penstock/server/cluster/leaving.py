"""How a node leaves: it serves until others have its tablets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.coordination import Coordination, MemberRecord
from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)

LOOK_S = 0.05
PATIENCE_S = 5.0  # without a tablet that leaves: after that the node ends, and the others take over what it has
PATIENCE_MAX_S = 25.0  # in all: service managers kill what takes much longer to stop


async def hand_over(
    coordination: Coordination, record: MemberRecord, count_tablets: Callable[[], int], *, has_lead: Callable[[], bool]
) -> None:
    """Tell the others that this node leaves, and wait until they have its tablets and the lead, for as long as they go on taking
    them."""
    loop = asyncio.get_running_loop()
    ends_s, left = loop.time() + PATIENCE_MAX_S, count_tablets()
    try:
        async with asyncio.timeout(PATIENCE_S) as patience:
            await coordination.update_member(record)
            while coordination.staying() - {record.node_id} and not coordination.is_maintained:
                before, left = left, count_tablets()
                if not left and not has_lead():
                    return
                if left < before:
                    patience.reschedule(min(loop.time() + PATIENCE_S, ends_s))
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        log.warning("not all tablets were handed over in time; others take them over")
    except PenstockError as error:
        log.warning("tablets are not handed over: %s", error)
