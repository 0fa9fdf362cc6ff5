"""What `carpool ls` and `carpool show` print on a terminal, of a real daemon with jobs of every kind."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmarks.jobs import environment
from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

COLUMNS = 100
DEVICE = "host:192MiB"
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PATIENCE_S = 120
ITERATIONS = 20
#: Viewers of a picture load no fonts from elsewhere.
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw() -> dict[str, str]:
    """The pictures, by name."""
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        home = Path(directory) / "home"
        with Session(home, [DEVICE], "fair") as client, _work() as work:
            running = _submit(client, work)
            _wait_for_iterations(client, running)
            shown = {"terminal-ls": ["ls"], "terminal-show": ["show", str(running[0])]}
            return {name: picture(words, on_terminal(home, words)) for name, words in shown.items()}


@contextmanager
def _work() -> Iterator[Path]:
    """A directory with the examples whose name says nothing of this machine."""
    place = Path(tempfile.gettempdir()) / "vision"
    place.symlink_to(EXAMPLES)
    try:
        yield place
    finally:
        place.unlink()


def _submit(client: DaemonClient, work: Path) -> list[int]:
    """Jobs that run, that wait, that failed and that succeeded; returns those that run."""
    env = environment() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def submit(*argv: str, **options: object) -> int:
        return client.submit(SubmitRequest(argv=[*argv], cwd=str(work), env=env, **options))  # type: ignore[arg-type]

    done = submit("python", "-c", "print('ready')", name="prepare")
    failed = submit("python", "cnn.py", "--epochs", "3", name="digits-typo")
    for job in (done, failed):
        client.wait(job, PATIENCE_S)
    running = [
        submit("python", f"{script}.py", "--iterations", "3000", name=name, iterations=3000)
        for script, name in (("cnn", "digits-lr0.1"), ("gpt", "text-of-the-week"))
    ]
    submit("python", "cnn.py", "--seed", "2", name="digits-with-a-larger-batch", persistent_bytes=170 << 20)
    submit("python", "evaluate.py", name="evaluation", after=running[:1])
    return running


def _wait_for_iterations(client: DaemonClient, jobs: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while min(client.job(job).iterations for job in jobs) < ITERATIONS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"jobs {jobs} have not done {ITERATIONS} iterations within {PATIENCE_S} s")
        time.sleep(0.1)


def on_terminal(home: Path, words: list[str]) -> str:
    """What a command prints on a terminal, colours included.  Raises CalledProcessError."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "carpool.cli", *words, "--home", str(home)]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    env.pop("NO_COLOR", None)
    with os.fdopen(ours, "rb", buffering=0) as output:
        process = subprocess.Popen(command, stdout=theirs, env=env)
        os.close(theirs)
        shown = b"".join(_pieces(output))
        code = process.wait()
    if code:
        raise subprocess.CalledProcessError(code, command)
    return shown.decode().replace("\r\n", "\n")


def _pieces(output: io.RawIOBase | io.FileIO) -> Iterator[bytes]:
    try:
        while piece := output.read(65536):
            yield piece
    except OSError:  # EIO: nobody has the other side open any more
        return


def picture(words: list[str], shown: str) -> str:
    """The picture of a terminal with a command and what it has printed."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text(f"$ carpool {' '.join(words)}"))
    # With its newline: of the last line `export_svg` cuts everything, or its lower edge, by the viewer.
    console.print(Text.from_ansi(shown))
    return _FONTS.sub("", console.export_svg(title="carpool", unique_id="carpool"))
