"""A tab stays open on the timeline while jobs take turns: ``python -m tests.dashboard.browser.open_tab MINUTES``.

Prints as JSON the messages that it got and the bytes of its JavaScript heap after collections, four times a minute; or
why there can be no browser here.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.daemon.daemon_harness import Daemon
from tests.dashboard.browser.browser_rig import BrowserRig, lacking, rig_of, scene

EVERY_S = 15.0
COUNT = """
globalThis.heard = 0;
globalThis.WebSocket = class extends WebSocket {
  set onmessage(listener) { super.onmessage = (event) => { heard += 1; listener(event); }; }
};
"""


def watched(rig: BrowserRig, minutes: int) -> dict[str, object]:
    scene(rig)
    page = rig.open("timeline").page
    page.add_init_script(COUNT)
    page.reload()
    page.locator("canvas").first.wait_for()
    devtools = page.context.new_cdp_session(page)
    heaps, begun = [], time.monotonic()
    for number in range(1, round(minutes * 60 / EVERY_S) + 1):
        page.wait_for_timeout(max(0.0, begun + number * EVERY_S - time.monotonic()) * 1000)
        devtools.send("HeapProfiler.collectGarbage")
        heaps.append(devtools.send("Runtime.getHeapUsage")["usedSize"])
    found = {"messages": page.evaluate("heard"), "heap_bytes": heaps}
    rig.close_pages()
    return found


def main(minutes: int) -> None:
    if why := lacking():
        print(json.dumps({"lacking": why}))
        return
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        daemon = Daemon(Path(directory) / "home", "--device", "host:256MiB", "--device", "host:128MiB").started()
        with rig_of(daemon) as rig:
            print(json.dumps(watched(rig, minutes)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
