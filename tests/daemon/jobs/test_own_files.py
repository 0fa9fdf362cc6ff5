"""Files that users name for their jobs' output are opened with the rights of the user, never with the daemon's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.daemon_harness import NOBODY, Daemon, Refused, as_nobody

Make = Callable[..., Daemon]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_user_reaches_no_file_that_is_not_the_users(make_daemon: Make, home: Path, tmp_path: Path) -> None:
    home.parent.chmod(0o711)
    daemon = make_daemon().started()
    theirs, ours = home.parent / "theirs", home.parent / "ours"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    ours.write_text("secret\n")
    (theirs / "link").symlink_to(ours)
    for name in (str(ours), str(theirs / "link")):
        job = as_nobody(daemon, f"daemon.submit('echo', 'x', cwd='/tmp', output={name!r})")
        end = daemon.wait(job)
        assert end["outcome"] == "failed" and "Permission denied" in end["reason"]["text"]
    assert ours.read_text() == "secret\n"
    job = as_nobody(daemon, f"daemon.submit('echo', 'x', cwd='/tmp', output={str(theirs / '%j.out')!r})")
    assert daemon.wait(job)["outcome"] == "succeeded"
    made = theirs / f"{job}.out"
    assert made.read_text() == "x\n" and made.stat().st_uid == NOBODY


@pytest.mark.parametrize("name", ["relative", "/tmp/%x", "/tmp/\0", "/tmp/%"])
def test_names_that_are_no_files_of_a_job(daemon: Daemon, name: str) -> None:
    with pytest.raises(Refused) as refused:
        daemon.submit("true", output=name)
    assert refused.value.code == "bad_output"
