"""`carpool doctor --report`: what is in the file, and what must not be."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.cli.base.bug_report import OWN_WORDS, REMOVED, Anonymous
from tests.cli.conftest import Cli
from tests.cli.real import stopped_afterwards

SECRET = "hunter2-secret"


def files(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        members = [(member.name, archive.extractfile(member)) for member in archive.getmembers()]
        return {name.removeprefix("carpool-report/"): file.read() for name, file in members if file is not None}


def test_a_report_has_what_happened_and_no_secret(carpool: Cli, home: Path, tmp_path: Path) -> None:
    carpool.env["MY_TOKEN"] = f"{SECRET}-env"
    with stopped_afterwards(carpool, home):
        carpool.ok("up", "--device", "host:64MiB")
        named = ["--name", f"{SECRET}-name", "--output", f"{tmp_path}/{SECRET}-out"]
        carpool.ok("submit", *named, "--", "sh", "-c", f"echo {SECRET}-argv; exit 3")
        carpool("wait", "--all")
        said = carpool.ok("doctor", "--report", "report.tar.gz", cwd=tmp_path)
        parts = json.loads(carpool.ok("doctor", "--report", "other.tar.gz", "--json", cwd=tmp_path))["files"]
        assert "look at the file before you send it" in said
    found = files(tmp_path / "report.tar.gz")
    assert set(found) == set(parts)
    assert set(found) == {
        *("about.json", "checks.json", "daemon.json", "daemon.log", "devices.json", "events.jsonl", "jobs.json")
    }
    everything = b"\n".join(found.values()).decode()
    for text in (SECRET, str(home), str(tmp_path), "MY_TOKEN"):
        assert text not in everything
    (job,) = json.loads(found["jobs.json"])
    assert (job["outcome"], job["exit_code"], job["owner"]) == ("failed", 3, 0 if job["owner"] == 0 else 1)
    kinds = [json.loads(line)["kind"] for line in found["events.jsonl"].splitlines()]
    assert kinds.index("Submitted") < kinds.index("StartJob") < kinds.index("EndJob")
    assert json.loads(found["daemon.json"])["settings"]["grace_us"] == 20_000
    assert json.loads(found["devices.json"])["devices"][0]["id"] == "host0"
    assert json.loads(found["about.json"])["missing"] == {}


def test_without_a_daemon_the_report_says_so(carpool: Cli, tmp_path: Path) -> None:
    carpool.ok("doctor", "--report", "report.tar.gz", cwd=tmp_path)
    found = files(tmp_path / "report.tar.gz")
    assert set(found) == {"about.json", "checks.json"}
    assert set(json.loads(found["about.json"])["missing"]) == {"daemon", "daemon.log"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--report", "missing/report.tar.gz"], "missing/report.tar.gz cannot be written: No such file or directory"),
        (["--report", "report.tar.gz", "--journal"], "leave --journal out"),
    ],
)
def test_what_cannot_be_written_is_refused(carpool: Cli, tmp_path: Path, options: list[str], why: str) -> None:
    result = carpool("doctor", *options, cwd=tmp_path)
    assert result.returncode != 0 and why in result.stderr
    assert not list(tmp_path.glob("*.tar.gz*"))


FIELDS = [*sorted(OWN_WORDS), "name", "text", "owner"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["cuda0", "failed", "/home/a/mine.py:Own"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner),
    max_leaves=20,
)


def texts(value: Any, field: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [each for name, inner in value.items() for each in texts(inner, name)]
    if isinstance(value, list):
        return [each for inner in value for each in texts(inner, field)]
    return [(field, value)] if isinstance(value, str) else []


@given(VALUES)
def test_texts_stay_in_fields_of_our_own_words_only(value: Any) -> None:
    for field, text in texts(Anonymous("/nowhere").value(value)):
        assert text in ("", REMOVED) or (field in OWN_WORDS and "/" not in text)


def test_lines_of_the_log_lose_names_and_printed_texts() -> None:
    anonymous = Anonymous("/srv/carpool", ["her-model"])
    line = "ERROR the core refused Submitted(job=1, spec=JobSpec(owner=5, name='it\\'s mine', user=\"al\", weight=1))"
    assert "mine" not in anonymous.line(line) and "al" not in anonymous.line(line).split("user=")[1][:14]
    assert anonymous.line("her-model is in /srv/carpool/jobs") == f"{REMOVED} is in $CARPOOL_HOME/jobs"
