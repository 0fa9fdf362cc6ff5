"""One daemon, one dashboard and one browser per module."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.daemon_harness import Daemon
from tests.dashboard.browser.browser_rig import BrowserRig, lacking, rig_of


@pytest.fixture(scope="module")
def module_rig() -> Iterator[BrowserRig]:
    if why := lacking():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        home = Path(directory) / "home"
        daemon = Daemon(home, "--device", "host:256MiB", "--device", "host:128MiB").started()
        with rig_of(daemon) as rig:
            yield rig
        assert "Traceback" not in daemon.log(), daemon.log()


@pytest.fixture
def rig(module_rig: BrowserRig) -> Iterator[BrowserRig]:
    """Pages end with the test, and its jobs with them."""
    yield module_rig
    module_rig.close_pages()
    for job in module_rig.daemon.get("/v1/jobs?phase=queued,starting,running")["jobs"]:
        module_rig.daemon.cancel_unless_ended(job["id"])
        module_rig.daemon.wait(job["id"])
