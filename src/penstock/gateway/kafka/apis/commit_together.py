"""CommitTogether and ApplicationRecord: several transactions as one, for sinks that write from many places."""

from __future__ import annotations

from penstock.broker.transactions import CommitOutcome, Producer, TransactionCommit
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.transaction_codes import coordinator_code
from penstock.gateway.kafka.call import Call
from penstock.kafka.protocol.private import (
    ApplicationRecordRequest,
    ApplicationRecordResponse,
    CommittedTransaction,
    CommitTogetherRequest,
    CommitTogetherResponse,
)


async def commit_together(call: Call, request: CommitTogetherRequest) -> CommitTogetherResponse:
    """Commit all transactions and set the record, or nothing of it."""
    ends = [
        TransactionCommit(transaction.transactional_id, Producer(transaction.producer_id, transaction.producer_epoch))
        for transaction in request.transactions
    ]
    try:
        outcome, owners = await call.node.coordinator.transactions.commit_together(
            ends, (request.record_key, request.record_value), expected=request.expected_value
        )
    except PenstockError as error:
        return CommitTogetherResponse(error_code=coordinator_code(error, tells_abortable=True), error_message=str(error))
    return CommitTogetherResponse(
        already_committed=outcome is CommitOutcome.BEFORE,
        transactions=[
            CommittedTransaction(transactional_id=name, producer_id=owner.id, producer_epoch=owner.epoch)
            for name, owner in owners.items()
        ],
    )


async def application_record(call: Call, request: ApplicationRecordRequest) -> ApplicationRecordResponse:
    """What was committed last under a key."""
    try:
        value = call.node.coordinator.transactions.application_record(request.record_key)
    except PenstockError as error:
        return ApplicationRecordResponse(error_code=coordinator_code(error), error_message=str(error))
    return ApplicationRecordResponse(record_value=value)
