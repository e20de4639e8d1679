"""Pages as tests see them: their fenced blocks, and a shell in which those are carried out as a reader would.

A block whose fence says ```sh is run; one that says ```text right after it is what it must have printed, line by line, where `…`
stands for anything. A block that names a file (```python totals.py) is saved under that name first. Addresses in the pages are
the usual ones; here they stand for free ports, since others may be using those.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "README.ru.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
SHELLS = frozenset({"sh", "bash", "console"})
READY_S = 60.0
# Of Kafka clients, the console, Kafka Connect, and a Kafka that a page migrates from.
PORTS = ("9092", "8080", "8083", "9192")
ADDRESS = re.compile(rf"(?P<host>127\.0\.0\.1|localhost):(?P<port>{'|'.join(PORTS)})\b")
# A block of a numbered step is indented.
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    name: str
    body: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, _, name = match["info"].strip().partition(" ")
        body = textwrap.dedent(match["body"]) if match["indent"] else match["body"]
        found.append(Block(language, name.strip(), body, text.count("\n", 0, match.start()) + 1))
    return found


def commands(block: Block) -> Iterator[str]:
    """The command lines of a block, with continued lines joined and remarks left out."""
    joined = block.body.replace("\\\n", " ")
    for line in joined.splitlines():
        stripped = re.sub(r"(^|\s)#.*$", "", line).strip()
        if stripped:
            yield stripped


class Shell:
    """Runs blocks in a folder. What a block leaves running in the background is ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._kafka, self._http = self._ports["9092"], self._ports["8080"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self._environment = {
            **clean,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_KAFKA_PORT": str(self._kafka),
            "PENSTOCK_HTTP_PORT": str(self._http),
            "PENSTOCK_HTTP": f"127.0.0.1:{self._http}",
            "PENSTOCK_BOOTSTRAP": f"127.0.0.1:{self._kafka}",
        }
        self._background: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._background:
            _end(process)
        for file in self.folder.glob("*.pid"):
            _kill(int(file.read_text()), self.folder)

    def here(self, text: str) -> str:
        """A text of a page with the addresses that are used here."""
        return ADDRESS.sub(lambda match: f"{match['host']}:{self._ports[match['port']]}", text)

    def save(self, block: Block) -> None:
        """A file that the page has the reader make."""
        (self.folder / block.name).write_text(self.here(block.body), encoding="utf-8")

    def run(self, script: str, timeout: float = 250.0) -> str:
        """Run a block to its end, which must be a good one; what it printed. Output goes by a file, not by a pipe: what the block
        leaves running has it open, too."""
        out = self.folder / ".out"
        with out.open("wb") as file:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", self.here(script)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
                env=self._environment,
            )
        said = out.read_text(errors="replace")
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{said[-3000:]}"
        return said

    def start(self, command: str, until: str) -> str:
        """Start what does not end by itself, and wait until it has printed something."""
        out = self.folder / f".out{len(self._background)}"
        with out.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.here(command)}"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        self._background.append(process)
        deadline = time.monotonic() + READY_S
        while until not in (said := out.read_text(errors="replace")):
            assert process.poll() is None, f"{command}\nended with {process.returncode}:\n{said[-3000:]}"
            assert time.monotonic() < deadline, f"{command}\nhas not printed {until!r}, but:\n{said[-3000:]}"
            time.sleep(0.05)
        return said


def follow(page: Path, shell: Shell) -> int:
    """Do what a page says, from top to bottom; how many blocks were run."""
    ran = 0
    said = ""
    for block in blocks(page):
        if block.language in SHELLS:
            said = shell.run(block.body)
            ran += 1
        elif block.language == "text":
            check_output(shell.here(block.body), said, f"{page.name}:{block.line}")
        elif block.name:
            shell.save(block)
    return ran


def check_output(expected: str, said: str, where: str) -> None:
    """Every expected line was printed, in this order; `…` stands for anything."""
    lines = iter([" ".join(line.split()) for line in said.splitlines()])
    for wanted in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        assert any(pattern.fullmatch(line) for line in lines), (
            f"{where} says {wanted!r} is printed; it was not, or not there:\n{said}"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _kill(pid: int, folder: Path) -> None:
    """A process that a page started in its folder and left running."""
    try:
        if Path(f"/proc/{pid}/cwd").readlink() == folder.resolve():
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
