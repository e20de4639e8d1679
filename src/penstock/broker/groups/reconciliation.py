"""Moves a member from its current to its target assignment: it first revokes partitions, and only then gets new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.broker.consumers import TopicPartition
from penstock.broker.groups.consumer_records import NO_QUEUES, Member, MemberState


def reconcile(
    member: Member,
    target: frozenset[TopicPartition],
    target_epoch: int,
    owned: frozenset[TopicPartition] | None,
    is_free: Callable[[TopicPartition], bool],
) -> Member:
    """The member after a heartbeat that reports the partitions it owns (None: not reported). `is_free` returns whether no
    other member owns a partition or is still revoking it."""
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if owned is None or not member.revoking.isdisjoint(owned):
            return member
        # What was asked for is given up; the member comes one epoch closer even if the next step is to give up more.
        epoch += 1
    elif member.state is MemberState.STABLE and epoch == target_epoch:
        return member
    kept = member.assigned & target
    revoking = member.assigned - target
    if revoking and (owned is None or not revoking.isdisjoint(owned)):
        return _moved(member, epoch, MemberState.UNREVOKED, kept, revoking)
    wanted = target - member.assigned
    free = frozenset(filter(is_free, wanted))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    return _moved(member, target_epoch, state, kept | free, NO_QUEUES)


def _moved(
    member: Member, epoch: int, state: MemberState, assigned: frozenset[TopicPartition], revoking: frozenset[TopicPartition]
) -> Member:
    """Returns the member with its next assignment. It may still use its previous epoch, if the response gets lost."""
    previous_epoch = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(member, epoch=epoch, previous_epoch=previous_epoch, state=state, assigned=assigned, revoking=revoking)
