"""How many Python functions a produce request calls in gateway and broker: that is most of what it costs there."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import FrameType

import penstock
from penstock.kafka.protocol import keys
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import RawClient, frame_of, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway

REQUESTS = 50
CALLS_MAX = 16


def test_a_produce_request_takes_few_calls(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    folder = penstock.__path__[0]
    layers = (f"{folder}/gateway/", f"{folder}/broker/")
    calls: Counter[str] = Counter()

    seen: set[str] = set()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        seen.add(code.co_name)
        if event == "call" and code.co_filename.startswith(layers):
            calls[f"{code.co_filename.removeprefix(folder)} {code.co_qualname}"] += 1

    async def watch(*, is_on: bool) -> None:
        sys.setprofile(count if is_on else None)

    def produce(sequence: int) -> None:
        now_ms = int(time.time() * 1000)
        batch = make_batch([b"x" * 1024], timestamp=now_ms, producer_id=5, producer_epoch=0, base_sequence=sequence)
        client.socket.sendall(frame_of(keys.PRODUCE, 9, produce_request(topic, batch)))
        assert client.receive_frame() is not None

    produce(0)
    gateway.run(watch(is_on=True))
    for sequence in range(1, REQUESTS + 1):
        produce(sequence)
    gateway.run(watch(is_on=False))
    # Now and then something else runs on the loop as well.
    assert sum(calls.values()) <= (CALLS_MAX + 1) * REQUESTS, calls.most_common(30)
    assert "watch" in seen, "the loop was not watched"  # of a node that is compiled, nothing else may be seen
