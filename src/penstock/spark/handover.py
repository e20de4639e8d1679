"""Run by path, with nothing but Python itself: has the process that Spark starts forked from one that has everything imported,
and stands for it until it ends. What cannot be forked is started here instead."""

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType

# The variable that says where it is.
FORKER = "SPARK_PENSTOCK_FORKER"
SECONDS_MAX = 10.0
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the given Python arguments in a forked process."""
    arguments, early = sys.argv[1:], list[int]()
    for number in SIGNALS:
        signal.signal(number, lambda number, _: early.append(number))
    process = ask(os.environ[FORKER], arguments)
    if process is None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, *arguments])
    proxy_process(process, early)


def ask(address: str, arguments: list[str]) -> int | None:
    """Request a fork. Returns its process id, or None if the process must be started normally."""
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    data = json.dumps(request).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(SECONDS_MAX)
            connection.connect(address)
            sent = socket.send_fds(connection, [data], [0, 1, 2])
            connection.sendall(data[sent:])
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(32)
    except OSError:
        return None
    return int(answer) if answer else None


def proxy_process(process: int, early: list[int]) -> None:
    """Forward signals to the process, and end with it."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return

    def pass_on(number: int, _: FrameType | None = None) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)

    for number in SIGNALS:
        signal.signal(number, pass_on)
    for signal_number in early:
        pass_on(signal_number)
    # Those of Spark are for the process alone, to be closed with it.
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(nothing, file)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    while not poll.poll():
        pass


if __name__ == "__main__":
    main()
