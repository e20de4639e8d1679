"""The process of one worker. `penstock up` starts it; it is no command of its own."""

from __future__ import annotations

import os
import sys
from functools import partial

from penstock.cli.failure import CommandError
from penstock.cli.up import mount_console, node_errors, run_node


def main() -> int:
    """Be the worker that the first line of standard input describes, until that ends or a signal comes. The arguments are modules
    that it will need: a spare process has them by the time it is needed."""
    from penstock.server.broker_host import import_listeners
    from penstock.server.supervisor.worker import WorkerNode
    from penstock.server.supervisor.worker_order import WorkerOrder

    import_listeners(sys.argv[1:])
    line = _first_line()
    if not line:
        return 0  # the supervisor has ended and needs no spare process any more
    try:
        with node_errors():
            order = WorkerOrder.decode(line)
            run_node(order.config, partial(WorkerNode.start, order, mount_console), as_json=True, worker=order.worker)
    except CommandError as error:
        print(f"penstock up: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _first_line() -> bytes:
    """The first line of standard input; empty if there is none. Nothing after it is read, so that the event loop sees its end."""
    line = bytearray()
    while not line.endswith(b"\n") and (piece := os.read(sys.stdin.fileno(), 1)):
        line += piece
    return bytes(line)


if __name__ == "__main__":
    sys.exit(main())
