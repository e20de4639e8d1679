"""The planner of tablets: whatever the cluster is like, nothing is taken from a node that may live, and plans come to an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.placement import MoveReason, NodeState, NodeView, Plan, TabletView, choose, plan
from penstock.placement.plan import STARTS_AHEAD, TOLERANCE

NODES = range(1, 7)
ROUNDS_MAX = 200
EXAMPLES = 40  # each has many values to draw

nodes_of = st.lists(st.sampled_from(NODES), min_size=1, unique=True).flatmap(
    lambda ids: st.tuples(
        *(
            st.builds(
                NodeView,
                st.just(node_id),
                st.sampled_from([NodeState.ALIVE, NodeState.ALIVE, NodeState.ALIVE, NodeState.UNREACHED, NodeState.LOST]),
                is_draining=st.sampled_from([False, False, False, True]),
                is_settled=st.sampled_from([True, True, False]),
            )
            for node_id in ids
        )
    )
)
tablets_of = st.lists(
    st.builds(
        TabletView,
        st.integers(1000, 1100),
        owner=st.one_of(st.none(), st.sampled_from(NODES)),
        topic=st.sampled_from("abc"),
        partitions=st.sampled_from([1, 1, 1, 2, 5, 16]),
        load=st.sampled_from([0.0, 1.0, 1e6]),
        disk_nodes=st.frozensets(st.sampled_from(NODES), max_size=3),
        is_pinned=st.sampled_from([False, False, False, True]),
        strikes=st.integers(0, 2),
        is_failing=st.sampled_from([False] * 9 + [True]),
        is_moving=st.sampled_from([False] * 9 + [True]),
        is_kept=st.sampled_from([False] * 9 + [True]),
        is_starting=st.sampled_from([False] * 9 + [True]),
    ),
    max_size=40,
    unique_by=lambda tablet: tablet.tablet_id,
)


def applied(tablets: Sequence[TabletView], done: Plan) -> list[TabletView]:
    """The tablets once a plan is carried out; one that failed elsewhere runs at its new owner."""
    owners = {takeover.tablet_id: takeover.node_id for takeover in done.takeovers}
    owners |= {move.tablet_id: move.target for move in done.moves}
    return [
        replace(tablet, owner=owners[tablet.tablet_id], is_failing=False) if tablet.tablet_id in owners else tablet
        for tablet in tablets
    ]


@settings(max_examples=EXAMPLES)
@given(nodes_of, tablets_of, st.integers(1, 8), st.booleans())
def test_a_plan_takes_only_from_lost_nodes_and_gives_only_to_living_ones(
    nodes: Sequence[NodeView], tablets: Sequence[TabletView], moves_max: int, is_maintained: bool
) -> None:
    by_id = {node.node_id: node for node in nodes}
    by_tablet = {tablet.tablet_id: tablet for tablet in tablets}
    made = plan(nodes, tablets, moves_max=moves_max, is_maintained=is_maintained)
    for takeover in made.takeovers:
        tablet = by_tablet[takeover.tablet_id]
        owner = None if tablet.owner is None else by_id.get(tablet.owner)
        assert owner is None or owner.state is NodeState.LOST
        assert not (is_maintained and owner is not None)
    for move in made.moves:
        assert by_tablet[move.tablet_id].owner == move.source != move.target
        assert by_id[move.source].state is NodeState.ALIVE
        assert move.reason in (MoveReason.DRAIN, MoveReason.PINNED) or not is_maintained
        if move.reason is MoveReason.DRAIN:
            assert by_id[move.source].is_draining
        if move.reason is MoveReason.BALANCE:
            assert by_id[move.target].is_settled
            assert not by_tablet[move.tablet_id].is_kept
            assert not any(node.state is NodeState.UNREACHED for node in nodes)
            assert not any(tablet.is_starting and not tablet.is_moving for tablet in tablets)
    targets = {change.tablet_id: change.node_id for change in made.takeovers} | {m.tablet_id: m.target for m in made.moves}
    assert len(targets) == len(made.takeovers) + len(made.moves), "a tablet is given away twice"
    for tablet_id, target in targets.items():
        assert by_id[target].can_take
        assert not by_tablet[tablet_id].is_moving
        assert not by_tablet[tablet_id].is_pinned or target in by_tablet[tablet_id].disk_nodes
    assert len(made.moves) <= moves_max


@settings(max_examples=EXAMPLES)
@given(nodes_of, tablets_of)
def test_tablets_of_lost_nodes_are_taken_over_at_once_unless_no_node_can_run_them(
    nodes: Sequence[NodeView], tablets: Sequence[TabletView]
) -> None:
    by_id = {node.node_id: node for node in nodes}
    made = plan(nodes, tablets, moves_max=4)
    placed = {takeover.tablet_id for takeover in made.takeovers}
    able = [node.node_id for node in nodes if node.can_take]
    for tablet in tablets:
        owner = None if tablet.owner is None else by_id.get(tablet.owner)
        is_orphan = not tablet.is_moving and (owner is None or owner.state is NodeState.LOST)
        can_be = any(not tablet.is_pinned or node_id in tablet.disk_nodes for node_id in able)
        assert (tablet.tablet_id in placed) == (is_orphan and can_be)
        assert (tablet.tablet_id in made.homeless) == (is_orphan and not can_be)
    order = [tablet for takeover in made.takeovers for tablet in tablets if tablet.tablet_id == takeover.tablet_id]
    assert order == sorted(order, key=lambda tablet: (tablet.strikes, -tablet.load, tablet.tablet_id))


@settings(max_examples=EXAMPLES)
@given(nodes_of, tablets_of, st.integers(1, 8))
def test_plans_come_to_an_end_with_drained_nodes_empty_and_the_others_even(
    nodes: Sequence[NodeView], tablets: Sequence[TabletView], moves_max: int
) -> None:
    nodes = [node if node.state is not NodeState.UNREACHED else replace(node, state=NodeState.ALIVE) for node in nodes]
    nodes = [replace(node, is_settled=True) for node in nodes]
    now = [replace(tablet, is_moving=False, is_kept=False, is_starting=False) for tablet in tablets]
    moved: Counter[int] = Counter()
    for _ in range(ROUNDS_MAX):
        made = plan(nodes, now, moves_max=moves_max)
        if not made.takeovers and not made.moves:
            break
        moved.update(move.tablet_id for move in made.moves if move.reason is MoveReason.BALANCE)
        now = applied(now, made)
    else:
        raise AssertionError(f"still moving after {ROUNDS_MAX} plans")
    takers = {node.node_id: 0 for node in nodes if node.can_take}
    draining = {node.node_id for node in nodes if node.state is NodeState.ALIVE and node.is_draining}
    for tablet in now:
        if tablet.owner in takers:
            takers[tablet.owner] += tablet.partitions
        if tablet.is_pinned and tablet.owner in (*takers, *draining) and tablet.owner not in tablet.disk_nodes:
            assert not tablet.disk_nodes & takers.keys(), "it could follow what it is pinned to"
        if tablet.owner in draining:
            assert not any(not tablet.is_pinned or node_id in tablet.disk_nodes for node_id in takers)
    for tablet in now:
        if tablet.owner in takers and not tablet.is_pinned:
            enough = max(2.0, TOLERANCE * sum(takers.values()) / len(takers), 2 * tablet.partitions)
            assert takers[tablet.owner] - min(takers.values()) < enough, "it could still be evened out"


@given(st.integers(2, 6), st.integers(0, 60))
def test_a_node_that_joins_gets_its_share_in_as_few_moves_as_that_takes(count: int, tablets: int) -> None:
    nodes = [NodeView(node_id) for node_id in range(1, count + 1)]
    before = [TabletView(1000 + number, owner=1 + number % (count - 1)) for number in range(tablets)]
    made = plan(nodes, before, moves_max=1000)
    assert len(made.moves) <= -(-tablets // count)
    assert all(move.target == count for move in made.moves)
    after = Counter(tablet.owner for tablet in applied(before, made))
    assert (
        max(after.values(), default=0) - min((after[node.node_id] for node in nodes), default=0)
        <= 1 + TOLERANCE * tablets / count
    )


def test_a_drain_may_move_more_tablets_at_once_than_balance_does() -> None:
    tablets = [TabletView(1000 + number, owner=1) for number in range(50)]
    made = plan([NodeView(1), NodeView(2)], tablets, moves_max=8, balance_max=2)
    assert [move.reason for move in made.moves] == [MoveReason.BALANCE] * 2
    made = plan([NodeView(1, is_draining=True), NodeView(2)], tablets, moves_max=8, balance_max=2)
    assert [move.reason for move in made.moves] == [MoveReason.DRAIN] * 8


@given(st.integers(1, 6), st.lists(st.sampled_from([1, 4, 16]), max_size=30))
def test_new_tablets_go_to_the_nodes_with_the_fewest_partitions(count: int, sizes: list[int]) -> None:
    nodes = [NodeView(node_id) for node_id in range(1, count + 1)]
    new = [TabletView(1000 + number, topic="t", partitions=size) for number, size in enumerate(sizes)]
    chosen = choose(nodes, [], new)
    totals = {node.node_id: 0 for node in nodes}
    for tablet in new:
        assert totals[chosen[tablet.tablet_id]] == min(totals.values())
        totals[chosen[tablet.tablet_id]] += tablet.partitions


def test_new_tablets_prefer_nodes_with_a_disk_of_their_group() -> None:
    nodes = [NodeView(1), NodeView(2), NodeView(3)]
    new = [TabletView(1000, disk_nodes=frozenset({3})), TabletView(1001, disk_nodes=frozenset({2, 3}))]
    assert choose(nodes, [], new) == {1000: 3, 1001: 2}


def test_a_tablet_of_a_group_on_one_node_waits_for_that_node() -> None:
    nodes = [NodeView(1), NodeView(2, NodeState.LOST)]
    tablet = TabletView(1000, owner=2, disk_nodes=frozenset({2}), is_pinned=True)
    assert plan(nodes, [tablet], moves_max=1) == Plan(homeless=(1000,))


@given(st.integers(2, 6), st.integers(0, 300), st.integers(0, 40))
def test_tablets_of_a_lost_node_start_on_all_survivors_even_if_one_has_none_yet(survivors: int, lost: int, starting: int) -> None:
    nodes = [NodeView(node_id) for node_id in range(1, survivors + 1)] + [NodeView(9, NodeState.LOST)]
    empty = survivors
    kept = [TabletView(node_id, owner=node_id, partitions=1000) for node_id in range(1, empty)]
    begun = [TabletView(500 + number, owner=empty, is_starting=True) for number in range(starting)]
    orphans = [TabletView(100_000 + number, owner=9) for number in range(lost)]
    given_to = [takeover.node_id for takeover in plan(nodes, [*kept, *begun, *orphans], moves_max=8).takeovers]
    starts = Counter({empty: starting})
    for total, node_id in enumerate(given_to, start=starting + 1):
        starts[node_id] += 1
        assert starts[node_id] <= total / survivors + STARTS_AHEAD + 1, "it starts more than its share"
    few = min(lost, STARTS_AHEAD - starting)
    assert given_to[: max(0, few)] == [empty] * max(0, few), "few tablets go where the fewest are"


def test_tablets_that_one_node_alone_can_run_are_taken_over_by_it_however_many_they_are() -> None:
    nodes = [NodeView(1), NodeView(2), NodeView(3, NodeState.LOST)]
    orphans = [TabletView(1000 + number, owner=3, disk_nodes=frozenset({1}), is_pinned=True) for number in range(100)]
    assert {takeover.node_id for takeover in plan(nodes, orphans, moves_max=8).takeovers} == {1}
