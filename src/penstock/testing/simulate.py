"""Fault simulations: `python -m penstock.testing.simulate --world partition --seeds 1000`, or `--seed 7` to replay one run.

One seed always gives the same run.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from penstock.blob import Erasure
from penstock.testing import simulate_blob, simulate_nodes, simulate_partition, simulate_placement
from penstock.testing.seed_runs import RunSeed, replay, search

KINDS = {erasure.value: erasure for erasure in Erasure}
WORLDS: dict[str, RunSeed] = {
    "blob": simulate_blob.run_seed,
    "nodes": simulate_nodes.run_seed,
    "partition": simulate_partition.run_seed,
    "placement": simulate_placement.run_seed,
}


def main(argv: Sequence[str] | None = None) -> int:
    """The command; whether any seed failed decides its exit code."""
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulate", description="Simulate faults by seed.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many run at a time (default: one per core)")
    parser.add_argument("--seed", type=int, help="replay this one seed")
    parser.add_argument("--erasure", choices=KINDS, help="the kind of group, instead of the one the seed chooses")
    parser.add_argument("--verbose", action="store_true", help="show what the simulated parts log")
    parser.add_argument(
        "--world", choices=WORLDS, default="blob", help="storage, storage over nodes, queues on it, or their placement"
    )
    asked = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO if asked.verbose else logging.CRITICAL)
    erasure = None if asked.erasure is None else KINDS[asked.erasure]
    run_seed = WORLDS[asked.world]
    if asked.seed is not None:
        return replay(run_seed, asked.seed, erasure)
    return search(run_seed, range(asked.first, asked.first + asked.seeds), erasure, asked.workers)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of bytes keep an order that depends on it, and with it a run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "penstock.testing.simulate", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
