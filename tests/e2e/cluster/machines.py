"""Network namespaces as machines: each with an address of its own on one bridge, cut off from others and joined again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Machines:
    """So many machines, numbered from 1, and this one, which is 0."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._tag = os.getpid() % 0x10000
        self._bridge = f"pb{self._tag:x}"
        self._net = f"10.{64 + (self._tag >> 8) % 128}.{self._tag & 0xFF}"
        self._cuts: list[tuple[int, int]] = []

    def address(self, number: int) -> str:
        """The address of a machine."""
        return f"{self._net}.{number or 254}"

    def run_by(self, number: int) -> tuple[str, ...]:
        """What runs a command on a machine."""
        return ("ip", "netns", "exec", self._space(number))

    def cut(self, number: int, other: int) -> None:
        """Let nothing pass between two machines."""
        self.cut_one_way(number, other)
        self.cut_one_way(other, number)

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """Let nothing that one machine sends arrive at another; 0 is left as it is: its packets are dropped on the way."""
        if sender == 0:
            sender, receiver = receiver, sender
        self._in(sender, "route", "add", "blackhole", f"{self.address(receiver)}/32")
        self._cuts.append((sender, receiver))

    def isolate(self, number: int) -> None:
        """Let nothing pass between a machine and any other."""
        for other in range(self.count + 1):
            if other != number:
                self.cut_one_way(number, other)

    def join(self) -> None:
        """End all cuts."""
        for sender, receiver in self._cuts:
            self._in(sender, "route", "del", "blackhole", f"{self.address(receiver)}/32")
        self._cuts.clear()

    def start(self) -> None:
        """Make them."""
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address(0)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number in range(1, self.count + 1):
            space, port = self._space(number), f"{self._bridge}-{number}"
            _ip("netns", "add", space)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", port, "master", self._bridge, "up")
            for words in (("link", "set", "lo", "up"), ("addr", "add", f"{self.address(number)}/24", "dev", "eth0")):
                self._in(number, *words)
            self._in(number, "link", "set", "eth0", "up")

    def stop(self) -> None:
        """Remove what there is of them."""
        for number in range(1, self.count + 1):
            _ip("netns", "del", self._space(number), check=False)
        _ip("link", "del", self._bridge, check=False)

    def _space(self, number: int) -> str:
        return f"penstock-{self._tag:x}-{number}"

    def _in(self, number: int, *words: str) -> None:
        _ip("-n", self._space(number), *words)


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=20)
    assert not check or done.returncode == 0, (words, done.stderr)


@contextmanager
def running_machines(count: int) -> Iterator[Machines]:
    """Machines; the test is skipped where there can be none."""
    if os.geteuid() != 0 or shutil.which("ip") is None or not Path("/proc/self/ns/net").exists():
        pytest.skip("network namespaces need root and the `ip` command (iproute2)")
    machines = Machines(count)
    try:
        machines.start()
    except AssertionError as error:
        machines.stop()
        pytest.skip(f"this system makes no network namespaces: {error}")
    try:
        yield machines
    finally:
        machines.stop()
