"""What a second user sees of the jobs of others: the limit `visibility`, in every answer of the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.daemon.api.visibility import Viewer, visible_entry, visible_fault, visible_job, without_others
from carpool.daemon.config.limits import Visibility
from carpool.daemon.journal.events import LogEntry
from carpool.protocol.api import AttemptInfo, JobInfo, ReasonInfo
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, as_nobody

#: In the command, the directory and what the job says of its failure.
SECRET = "s3cret"
#: Everything that a user may ask for, of job {0} and in general, as one text.
ANSWERS = """[str(attempt(lambda path=path: daemon.get(path))) for path in (
    '/v1/jobs', '/v1/jobs?phase=ended', '/v1/jobs/{0}', '/v1/jobs/{0}/wait?timeout_s=0', '/v1/jobs/{0}/placement',
    '/v1/jobs/{0}/logs', '/v1/devices', '/v1/events', '/v1/policy', '/v1/models', '/v1/version')]"""


def three_jobs(daemon: Daemon, tmp_path: Path) -> tuple[int, int, int]:
    """Of root's: one that runs, one that waits for it, one that could not be started."""
    directory = tmp_path / SECRET
    directory.mkdir()
    runs = daemon.python(
        f"print({SECRET!r}); import signal; signal.pause()", name="one", cwd=str(directory), line=SECRET
    )
    waits = daemon.submit("true", SECRET, after=[runs], name="two", cwd=str(directory))
    failed = daemon.submit(f"/no/such/{SECRET}", name="three")
    assert daemon.wait(failed)["outcome"] == "failed"
    return runs, waits, failed


def test_by_default_others_see_names_and_figures(make_daemon: Make, tmp_path: Path) -> None:
    daemon = make_daemon(limits='visibility = "names"\n').started()
    _runs, _waits, _failed = jobs = three_jobs(daemon, tmp_path)
    for job in jobs:
        answers: Any = as_nobody(daemon, ANSWERS.format(job))
        assert SECRET not in str(answers)
    seen: Any = as_nobody(daemon, "daemon.get('/v1/jobs')['jobs']")
    assert [(job["id"], job["name"], job["owner"]) for job in seen] == [(1, "one", 0), (2, "two", 0), (3, "three", 0)]
    assert [job["phase"] for job in seen] == ["running", "queued", "ended"]
    assert [job["reason"] and job["reason"]["text"] for job in seen] == [None, "", ""]
    assert seen[0]["device"] == "host0" and seen[0]["command"] == [] and seen[0]["cwd"] == ""
    assert [job.keys() for job in seen] == [job.keys() for job in daemon.get("/v1/jobs")["jobs"]]
    events: Any = as_nobody(
        daemon, "[__import__('json').loads(line) for line in daemon.get('/v1/events').splitlines()]"
    )
    mine = daemon.events()
    assert [(event["seq"], event["kind"], event["job"]) for event in events] == [
        (event["seq"], event["kind"], event["job"]) for event in mine[: len(events)]
    ]
    assert {str(event["data"]) for event in events if event["job"]} == {"{}"}
    assert SECRET in str(daemon.get("/v1/jobs")) and SECRET in str(mine), "root sees everything"


def test_where_only_ones_own_jobs_are_seen_there_are_no_others(make_daemon: Make, tmp_path: Path) -> None:
    daemon = make_daemon(limits='visibility = "own"\n').started()
    jobs = three_jobs(daemon, tmp_path)
    for job in jobs:
        answers: Any = as_nobody(daemon, ANSWERS.format(job))
        assert answers[2:6] == ["unknown_job"] * 4
        assert SECRET not in str(answers) and "three" not in str(answers)
    assert as_nobody(daemon, f"attempt(lambda: daemon.cancel({jobs[0]}))") == "unknown_job"
    device: Any = as_nobody(daemon, "daemon.get('/v1/devices')['devices'][0]")
    assert (device["jobs"], device["lanes"], device["telemetry"]["processes"] or []) == ([], [], [])
    assert device["capacity_bytes"] == daemon.get("/v1/devices")["devices"][0]["capacity_bytes"]
    theirs: Any = as_nobody(daemon, "daemon.submit('true', cwd='/tmp')")
    daemon.wait(theirs)
    after = "attempt(lambda: daemon.submit('true', cwd='/tmp', after=[{}]))"
    assert as_nobody(daemon, after.format(jobs[0])) == "unknown_dependency"
    assert as_nobody(daemon, after.format(jobs[2])) == "unknown_dependency"
    assert isinstance(as_nobody(daemon, after.format(theirs)), int)
    seen: Any = as_nobody(daemon, "daemon.get('/v1/jobs')['jobs']")
    assert {job["owner"] for job in seen} == {NOBODY} and seen[0]["command"] == ["true"]
    lines: Any = as_nobody(daemon, "daemon.get('/v1/events').decode().splitlines()")
    assert not {event["job"] for event in map(json.loads, lines)} & set(jobs)
    latest: Any = as_nobody(daemon, "daemon.get('/v1/events?limit=1000').decode().splitlines()")
    assert [json.loads(line)["seq"] for line in latest][: len(lines)] == [json.loads(line)["seq"] for line in lines]


def test_all_may_be_seen_where_that_is_wanted(make_daemon: Make, tmp_path: Path) -> None:
    daemon = make_daemon(limits='visibility = "all"\n').started()
    runs, *_ = three_jobs(daemon, tmp_path)
    assert as_nobody(daemon, f"daemon.get('/v1/jobs/{runs}')['cwd']") == str(tmp_path / SECRET)
    assert as_nobody(daemon, f"attempt(lambda: daemon.output({runs}))") == "not_owner"


def test_paths_that_a_user_may_not_look_into_are_not_told_of(daemon: Daemon, tmp_path: Path) -> None:
    """Neither by the answer to a submission nor by how the job ends; the same for models."""
    (tmp_path / "hidden" / "there").mkdir(parents=True)
    (tmp_path / "hidden").chmod(0o700)
    for name in ("there", "absent", "a" * 300):
        path = f"{tmp_path}/hidden/{name}"
        job: Any = as_nobody(daemon, f"attempt(lambda: daemon.submit('true', cwd={path!r}))")
        end = daemon.wait(job)
        assert (end["outcome"], end["reason"]["code"]) == ("failed", "start_failed")
        assert end["reason"]["text"] == f"could not be started: cannot start true in {path}: Permission denied"
        model = {"factory": "m:f", "python": path, "cwd": path, "env": {}, "weights": f"{path}.safetensors"}
        assert as_nobody(daemon, f"attempt(lambda: daemon.put('/v1/models/m?replace=1', {model})['cwd'])") == path


OWNERS = {1: 7, 2: 8}


def sight(sees: Visibility, uid: int = 7) -> Viewer:
    return Viewer(uid, sees, OWNERS.get)


def full_job(owner: int) -> JobInfo:
    """With something to say in each field that is text."""
    attempt = AttemptInfo(1, "host0", 1, 2, 1, None, SECRET, 3, 4, "log")
    texts = dict.fromkeys(("cwd", "alone", "immovable", "unmanaged"), SECRET)
    facts = dict.fromkeys(JobInfo.__struct_fields__, 0) | {"name": "n", "after": [], "devices": []} | texts
    return JobInfo(
        **facts | {"owner": owner, "command": [SECRET], "reason": ReasonInfo("c", SECRET), "attempts": [attempt]}
    )


def test_no_text_of_anothers_job_is_left() -> None:
    hidden = visible_job(sight(Visibility.NAMES), full_job(8))
    assert SECRET not in str(hidden)
    assert (hidden.name, hidden.reason, hidden.attempts[0].exit_code) == ("n", ReasonInfo("c", ""), 1)
    for mine in (visible_job(sight(Visibility.NAMES), full_job(7)), visible_job(sight(Visibility.ALL), full_job(8))):
        assert str(mine).count(SECRET) == 7


def test_reasons_name_no_jobs_that_are_not_known() -> None:
    own = sight(Visibility.OWN)
    text = "waiting: job 2, job 1, job 3 there; job 99999999999999999999 too"
    other = "another user's job"
    assert without_others(own, text) == f"waiting: {other}, job 1, {other} there; {other} too"
    rows = {"rows": [{"jobs": [1, 2, 3], "warming": [2], "refusal": {"code": "x", "text": "job 2"}}], "job": 2}
    seen = without_others(own, rows)
    assert seen == {"rows": [{"jobs": [1], "warming": [], "refusal": {"code": "x", "text": other}}], "job": 2}
    assert without_others(sight(Visibility.NAMES), rows) is rows
    assert "2" not in str(visible_fault(own, "next_turn returned job 2")) and visible_fault(own, None) is None


def entry(kind: str, job: int | None, /, **data: object) -> LogEntry:
    return LogEntry(1, 2, 3, kind, job, msgspec.json.encode(data | ({} if job is None else {"job": job})))


@pytest.mark.parametrize(
    ("happened", "names", "own"),
    [
        (entry("Submitted", 2, spec={"kind": SECRET}), "{}", None),
        (entry("GrantTurn", 1, lane=3), '{"lane":3,"job":1}', '{"lane":3,"job":1}'),
        (entry("NameSuccessor", None, holder=2, lane=3), "{}", None),
        (entry("NameSuccessor", None, holder=1, lane=3), '{"holder":1,"lane":3}', '{"holder":1,"lane":3}'),
        (entry("DropWeights", None, owner=8, key=SECRET), "{}", None),
        (entry("PaceKnown", None, kind=SECRET), "{}", None),
        (entry("KindOfALaterVersion", None, text=SECRET), "{}", None),
        (entry("Tick", None), "{}", "{}"),
        (entry("DeviceLoad", None, why="x"), '{"why":"x"}', '{"why":"x"}'),
    ],
    ids=lambda value: value.kind if isinstance(value, LogEntry) else "",
)
def test_of_what_happened_to_others_only_the_kind_is_seen(happened: LogEntry, names: str, own: str | None) -> None:
    for sees, wanted in ((Visibility.NAMES, names), (Visibility.OWN, own), (Visibility.ALL, happened.data.decode())):
        found = visible_entry(sight(sees), happened)
        assert (None if found is None else found.data.decode()) == wanted
