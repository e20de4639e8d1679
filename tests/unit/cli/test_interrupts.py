"""A command that is told to end twice still stops what it has started."""

from __future__ import annotations

import signal
import subprocess
import sys

COMMAND = """
import signal, time
from penstock.cli.interrupts import interrupt_once
interrupt_once((signal.SIGTERM, signal.SIGINT))
try:
    print("started", flush=True)
    time.sleep(60)
finally:
    print("stopping", flush=True)
    time.sleep(0.5)
    print("stopped", flush=True)
"""


def test_signals_after_the_first_do_not_interrupt_the_end() -> None:
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=20)
    assert output == "stopped\n"
    assert "KeyboardInterrupt" in errors, "the first one ended it"
