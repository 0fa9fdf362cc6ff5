"""``python -m tools.demo``: what sharing a device is for, in five scenes, each measured here, without and with it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from carpool.protocol.client import ClientError
from tools.demo import page
from tools.demo.picture import draw
from tools.demo.running import JobFailed
from tools.demo.scene import Scene
from tools.demo.scenes import answers, engines, memory, notebook, short_job
from tools.demo.session import DaemonFailed

SCENES = {
    "short-job": short_job.run,
    "notebook": notebook.run,
    "memory": memory.run,
    "answers": answers.run,
    "engines": engines.run,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)} (default: all but engines)")
    parser.add_argument("--out", default=Path("demo-out"), type=Path, help="directory for the pictures")
    text = "afterwards start a daemon with four jobs that stays, and show its page until Ctrl-C"
    parser.add_argument("--keep", action="store_true", help=text)
    options = parser.parse_args()
    if unknown := [name for name in options.scenes if name not in SCENES]:
        parser.error(f"there is no scene {unknown[0]!r}; choose from {', '.join(SCENES)}")
    if "engines" in options.scenes and (missing := engines.missing()):
        parser.error(f"engines: {missing}")
    return options


def usual() -> list[str]:
    """The scenes on host devices: the one on an emulated GPU runs when it is named."""
    return [name for name in SCENES if name != "engines"]


def show(scene: Scene, out: Path) -> str:
    """The scene's text, and its picture beside the report."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{scene.name}.svg"
    path.write_text(draw(scene.bands, scene.capacity), encoding="utf-8")
    return f"{scene.text()}\n  picture: {path}\n"


def main() -> int:
    options = parse_arguments()
    directory = Path(tempfile.mkdtemp(prefix="cp-demo-"))
    begin, texts = time.monotonic(), []
    try:
        for name in options.scenes or usual():
            texts.append(show(SCENES[name](directory / name), options.out))
            print(texts[-1], flush=True)
    except (JobFailed, DaemonFailed, ClientError, TimeoutError) as error:
        print(f"FAILED: {error}\nEverything is left in {directory} for a look.", file=sys.stderr)
        return 1
    (options.out / "report.txt").write_text("\n".join(texts), encoding="utf-8")
    print(f"{time.monotonic() - begin:.0f} s in all")
    shutil.rmtree(directory, ignore_errors=True)
    if options.keep:
        page.show(Path(tempfile.mkdtemp(prefix="cp-demo-")) / "home")
    else:
        print("See it live: make demo KEEP=1, or carpool dashboard beside a daemon of your own")
    return 0


if __name__ == "__main__":
    sys.exit(main())
