"""Leader epochs of a partition: where each ended, over restarts and trims."""

from __future__ import annotations

from penstock.queue.epochs import Epochs
from penstock.testing.batches import make_batch
from tests.sim_tablet import SimNode, history, on_node


def _known() -> Epochs:
    epochs = Epochs()
    for epoch, first_offset in ((2, 10), (5, 20), (6, 30)):
        epochs.begin(epoch, first_offset)
    return epochs


def test_an_epoch_ends_where_the_next_that_wrote_began() -> None:
    epochs = _known()
    assert epochs.latest == 6
    assert [epochs.end_of(epoch, 7, 40) for epoch in (2, 3, 4, 5, 6, 7)] == [(2, 20), (2, 20), (2, 20), (5, 30), (6, 40), (7, 40)]


def test_an_epoch_that_has_not_come_is_unknown_and_one_before_the_first_ends_where_that_began() -> None:
    epochs = _known()
    assert epochs.end_of(8, 7, 40) == (-1, -1)
    assert epochs.end_of(-1, 7, 40) == (-1, -1)
    assert epochs.end_of(1, 7, 40) == (1, 10)


def test_epochs_before_the_start_are_forgotten() -> None:
    epochs = _known()
    assert [epochs.kept_from(start) for start in (0, 10, 19, 20, 35)] == [0, 2, 2, 5, 6]
    epochs.forget_before(5)
    assert epochs.end_of(5, 7, 40) == (5, 30)
    assert epochs.end_of(2, 7, 40) == (2, 20)


def test_epochs_survive_restarts_and_follow_trims() -> None:
    async def scenario(node: SimNode) -> None:
        await (await node.queue(1)).add_partition(0, 100)
        for generation in (1, 2, 4):
            tablet = await node.queue(generation + 1)
            for _ in range(5):
                await tablet.partition(0).write(make_batch([b"v"]))
        partition = (await node.queue(9)).partition(0)
        assert len(await history(partition)) == 15
        assert [partition.epoch_end(epoch) for epoch in (2, 3, 5, 9)] == [(2, 105), (3, 110), (5, 115), (9, 115)]
        await partition.trim(107)
        partition = (await node.queue(10)).partition(0)
        assert [partition.epoch_end(epoch) for epoch in (3, 5, 10, 11)] == [(3, 110), (5, 115), (10, 115), (-1, -1)]
        assert partition.epoch_end(2)[1] == 105

    on_node(scenario)
