"""`core_dumps` in limits.toml: whether jobs may leave any.  `tests/e2e/test_withdrawn.py` looks at what is in them."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.daemon_harness import Daemon

LIMITS = "import json, resource; print(json.dumps(resource.getrlimit(resource.RLIMIT_CORE)))"


@pytest.mark.parametrize(("text", "limited"), [("core_dumps = false", True), ("core_dumps = true", False), ("", False)])
def test_a_job_may_leave_a_core_dump_or_not(
    make_daemon: Callable[..., Daemon], home: Path, text: str, limited: bool
) -> None:
    home.mkdir()
    (home / "limits.toml").write_text(text + "\n")
    daemon = make_daemon().started()
    job = daemon.python(LIMITS)
    assert daemon.wait(job)["outcome"] == "succeeded"
    soft, hard = json.loads(daemon.output(job))
    if limited:
        assert 0 <= soft == hard <= 1
    else:
        assert (soft, hard) == resource.getrlimit(resource.RLIMIT_CORE)
