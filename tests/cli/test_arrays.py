"""Arrays and grids: one id, one row, elements by their index, and how many run at once; against a real daemon."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.commands.jobs.wait import MOST_FAILED, _array_result
from carpool.cli.render.arrays import array_name, array_row, array_state, ranges
from carpool.cli.render.output import Output
from carpool.options.arrays import ArrayRange, array_of
from tests.cli.conftest import Cli, Forks
from tests.cli.real import DEVICE, daemon_pid, kill_and_wait, shared_daemon
from tests.cli.standin import ended, job

SAYS = 'echo "$CARPOOL_ARRAY_JOB $CARPOOL_ARRAY_INDEX"; [ "$CARPOOL_ARRAY_INDEX" != 4 ]'


@pytest.fixture(scope="module")
def shared(forks: Forks) -> Iterator[Cli]:
    with shared_daemon(forks, "--device", DEVICE, "--set", "kill_after_us=200ms") as cli:
        yield cli


def infos(cli: Cli) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli.ok("ls", "--all", "--json"))["jobs"]
    return found


def called(cli: Cli, name: str) -> list[dict[str, Any]]:
    return [info for info in infos(cli) if info["name"] == name]


def test_an_array_is_one_id_and_one_row(shared: Cli, tmp_path: Path) -> None:
    options = ["--name", "array", "--array", "0,2-4", "-o", "%A-%a"]
    array = shared.submit(*options, "--", "sh", "-c", SAYS, cwd=tmp_path)
    assert array.isdecimal()
    assert shared("wait", array).returncode == 1  # of element 4
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        f"{array}-{index}": f"{array} {index}\n" for index in (0, 2, 3, 4)
    }
    (row,) = (line for line in shared.ok("ls", "--all").splitlines() if " array " in line)
    assert row.split()[0] == f"{array}[0,2-4]" and "4 of 4 done, 1 failed" in row
    rows = shared.ok("ls", "--all", "--elements")
    assert f"{array}_2 " in rows and f"{array}_4 " in rows
    assert shared.ok("logs", f"{array}_2") == f"{array} 2\n"
    assert f"element 3 of array {array}" in shared.ok("show", f"{array}[3]")
    assert shared("wait", f"{array}[0-3]").returncode == 0
    assert shared("wait", "@", "--state", "failed").returncode == 1
    several = shared.fails(2, "logs", array)
    assert f"'{array}' names 4 jobs" in several and f"{array}_4 array" in several
    assert f"no job of yours is selected by '{array}_7'" in shared.fails(4, "logs", f"{array}_7")


def test_elements_have_one_name_in_all_commands(shared: Cli, tmp_path: Path) -> None:
    script = 'echo "$CARPOOL_ARRAY_INDEX"; [ "$CARPOOL_ARRAY_INDEX" != 77 ]'
    array = shared.submit("--name", "named", "--array", "3,77", "--", "sh", "-c", script, cwd=tmp_path)
    waited = shared("wait", array)
    first, failed = waited.stdout.splitlines()
    assert waited.returncode == 1 and re.fullmatch(rf"array {array}\[3,77\]: 1 succeeded, 1 failed, after .*", first)
    assert failed.startswith(f"  job {array}_77 failed (1) after ") and failed.endswith(": exited with code 1")
    assert shared("wait", "@_77").stdout.startswith(f"job {array}_77 failed (1) after ")
    assert shared("wait", "@_3").stdout.startswith(f"job {array}_3 succeeded after ")
    assert shared.ok("logs", "@_77") == shared.ok("logs", "@~0[77]") == "77\n"
    assert shared.ok("show", "@_77").startswith(f"job {array}_77\n")
    assert shared.ok("show", "--why", "@_77").startswith(f"job {array}_77 placed on ")
    (row,) = shared.ok("ls", "@_77").splitlines()[1:]
    assert row.split()[0] == f"{array}_77"
    used = [line.split()[0] for line in shared.ok("history", "--name", "named").splitlines()]
    assert {f"{array}_3", f"{array}_77"} <= {*used}
    records = json.loads(shared.ok("history", "--name", "named", "--json"))["jobs"]
    assert {record["element"] for record in records} == {f"{array}_3", f"{array}_77"}
    assert f"job {array}_77 writes its standard error where" in shared("logs", "@_77", "--error").stderr
    assert shared.ok("retry", "@_77") == f"{array}_77\n"
    assert shared("wait", "@_77").returncode == 1
    several = shared("show", array)
    assert f"{array}_77 named (failed (1))" in several.stderr
    assert shared("logs", "@_4").returncode == 4
    shared.ok("wait", shared.submit("--", "true"))
    assert "no job of yours is selected by '@_77'" in shared("show", "@_77").stderr  # the last one is no array


def test_what_is_done_to_elements_is_said_of_them_by_their_names(shared: Cli) -> None:
    array = shared.submit("--hold", "--name", "acted", "--array", "5-7", "--", "true")
    assert shared.ok("cancel", "@[5,7]").splitlines() == [f"job {array}_5 cancelled", f"job {array}_7 cancelled"]
    assert f"job {array}_6 has not ended: it is queued" in shared.fails(6, "wait", "@_6", "--timeout", "1ms")
    shared.ok("cancel", "@")
    all_three = shared("wait", array, "@_6").stdout.splitlines()
    assert all_three[0].startswith(f"array {array}[5-7]: 3 cancelled, after ") and len(all_three) == 4


def test_a_large_array_does_not_fill_the_screen() -> None:
    jobs = [ended(n + 3, "failed", array=3, index=n, exit_code=1) for n in range(200)]
    lines = _array_result(jobs, 9_000_000, Output())
    assert len(lines) == 2 + MOST_FAILED and lines[-1] == "  and 180 more: carpool ls 3[20-199]"
    good = [ended(n + 3, array=3, index=n) for n in range(200)]
    assert _array_result(good, 9_000_000, Output()) == ["array 3[0-199]: 200 succeeded, after 5.0s"]


def test_a_grid_is_one_thing_and_a_file_has_several(shared: Cli, tmp_path: Path) -> None:
    grid = shared.ok("submit", "--name", "g", "--param", "x=1,2", "--param", "y=a,b", "--", "echo", "{x}{y}").split()
    assert len(grid) == 1 and shared("wait", *grid).returncode == 0
    assert [shared.ok("logs", f"{grid[0]}_{index}") for index in range(4)] == ["1a\n", "1b\n", "2a\n", "2b\n"]
    assert re.search(rf"^ *{grid[0]}\[0-3\] +g +4 of 4 done ", shared.ok("ls", "--all"), re.MULTILINE)
    (tmp_path / "f.toml").write_text(
        '[[job]]\nname = "p"\ncommand = "echo {x}"\nparam = { x = [1, 2] }\n'
        '[[job]]\nname = "q"\ncommand = "true"\nafter = "p"\n'
    )
    first, last = map(int, shared.ok("submit", "f.toml", cwd=tmp_path).split())
    assert last == first + 2 and shared("wait", str(first), str(last)).returncode == 0


def test_so_many_run_at_once_and_cancelling_a_part(shared: Cli) -> None:
    array = shared.submit("--name", "few", "--array", "1-6%2", "--", "sleep", "600")
    mine = called(shared, "few")
    assert [info["phase"] == "queued" for info in mine] == [False, False, True, True, True, True]
    assert mine[2]["reason"] == {"code": "array", "text": f"2 jobs of array {array} run at once"}
    shared.ok("cancel", f"{array}[3,5]")
    shared.ok("cancel", f"{array}_1")
    shared("wait", f"{array}_1")
    mine = called(shared, "few")
    assert [info["index"] for info in mine if info["phase"] in ("starting", "running")] == [2, 4]
    while any(info["phase"] == "starting" for info in called(shared, "few")):
        pass
    (row,) = (line for line in shared.ok("ls").splitlines() if " few " in line)
    assert "3 of 6 done, 3 cancelled" in row and "1 queued, 2 running: 2 jobs of array" in row
    shared.ok("cancel", array)
    assert shared("wait", array).returncode != 0
    assert all(info["outcome"] == "cancelled" for info in infos(shared) if info["name"] == "few")


def test_what_is_asked_for_an_array_is_done_to_elements_that_it_can_be_done_to(shared: Cli) -> None:
    array = shared.submit("--name", "asked", "--array", "0-3%1", "--", "sleep", "600")
    assert len(shared.ok("hold", f"{array}[0-2]").splitlines()) == 2  # the first one runs
    assert shared("hold", f"{array}_0").returncode == 5
    shared.ok("update", array, "weight=200")
    assert {info["weight"] for info in called(shared, "asked")} == {200}
    shared.ok("pause", f"{array}_0")
    assert [info["phase"] for info in called(shared, "asked")][1:] == ["queued"] * 3  # it has its place still
    shared.ok("cancel", f"{array}_0")
    shared("wait", f"{array}_0")
    assert [info["index"] for info in called(shared, "asked") if info["phase"] in ("starting", "running")] == [3]
    assert len(shared.ok("release", array).splitlines()) == 2
    assert [info["reason"]["code"] for info in called(shared, "asked")[1:3]] == ["array", "array"]
    shared.ok("pause", array)
    assert len(shared.ok("resume", "@").splitlines()) == 3
    assert len(shared.ok("requeue", array).splitlines()) == 1
    assert len(shared.ok("cancel", array).splitlines()) == 3
    assert shared("wait", array).returncode != 0
    assert f"no job of yours is selected by '{array}'" in shared.fails(4, "cancel", array)


def test_a_daemon_that_was_killed_keeps_the_limit(own_daemon: Cli, home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"until [ -e {go} ]; do sleep 0.02; done"
    array = own_daemon.submit("--array", "0-4%2", "--shell", waits)
    own_daemon.ok("cancel", f"{array}_0")
    own_daemon("wait", f"{array}_0")
    kill_and_wait(daemon_pid(home))
    own_daemon.ok("up", "--device", DEVICE)
    assert [info["index"] for info in infos(own_daemon) if info["phase"] in ("starting", "running")] == [1, 2]
    go.touch()
    own_daemon("wait", array)
    assert [info["outcome"] for info in infos(own_daemon)] == ["cancelled", *["succeeded"] * 4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--array", "x"], "'x' is not a list of indices"),
        (["--array", "3-1"], "'3-1' has no index"),
        (["--array", "0-9%0"], "the number after % is how many jobs run at once"),
        (["--array", "0-1000"], "that makes 1001 jobs"),
        (["--array", "0-1", "--param", "x=1,2"], "--array and --param both make several jobs"),
        (["--array", "0-1", "-o", "same"], "several jobs would write to"),
    ],
)
def test_arrays_that_are_none(carpool: Cli, options: list[str], said: str) -> None:
    assert said in carpool.fails(2, "submit", *options, "--", "true")


def test_indices() -> None:
    assert array_of("1,4-8:2%3") == ArrayRange((1, 4, 6, 8), 3)
    assert ranges([5, 0, 1, 2, 9]) == "0-2,5,9"


def test_what_a_row_says() -> None:
    jobs = [
        ended(7, array=7, index=0, name="fit lr=0.1"),
        ended(8, "failed", array=7, index=1, name="fit lr=0.2", exit_code=1),
        job(9, array=7, index=2, name="fit lr=0.3"),
        job(10, array=7, index=3, name="fit lr=0.4", phase="queued", device=None),
    ]
    assert array_state(jobs) == "2 of 4 done, 1 failed"
    assert array_name(jobs) == "fit"
    row = array_row(jobs, 9_000_000)
    assert row == ("7[0-3]", "fit", "2 of 4 done, 1 failed", "host0", "-", "-", "-", "9.0s", "1 queued, 1 running")
