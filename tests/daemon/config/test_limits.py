"""`limits.toml`: what users of one daemon may do."""

from __future__ import annotations

import grp
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.core.model import Settings
from carpool.core.policies import POLICIES
from carpool.daemon.config import settings
from carpool.daemon.config.limits import DAY_US, Audience, Time, UserLimits, limits_table, read_limits
from carpool.daemon.config.options import parse_options
from carpool.daemon.config.settings import changed_settings
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, as_nobody

POLICY = "attempt(lambda: daemon.put('/v1/policy', {'name': 'fifo'})['name'])"
SERVICE = "attempt(lambda: daemon.submit('true', cwd='/tmp', service=1))"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("jobs = ", "Invalid value"),
        ("job_limit = 3", "unknown field `job_limit`"),
        ("keep_job = 3", "did you mean 'keep_jobs'?"),
        ('services = "nobody"', "'nobody' - at `$.services`"),
        ('admin_group = "no-such-group"', "admin_group: getgrnam(): name not found: 'no-such-group'"),
        ("admin_group = 4", "Expected `str | null`, got `int`"),
        ('visibility = "some"', "'some' - at `$.visibility`"),
        ('job_log = "1 parsec"', "parsec"),
        ('job_log = "8KiB"', "job_log: 8 KiB is less than 64 KiB"),
        ("jobs = 0", "Expected `int` >= 1 - at `$.jobs`"),
        ("submission_size = 5000", "did you mean 5000MiB?"),
        ('submission_size = "much"', "'much' is not a size"),
        ('submissions_size = "1B"', "'1B' is not between 4 KiB and 65536 GiB - at `$.submissions_size`"),
        ("retries = 1001", "Expected `int` <= 1000"),
        ("keep_for = 0", "keep_for: 0 is less than 1h00m"),
        ('keep_for = "a while"', "'a while' is not a time"),
        ('retry_pause = "1h"', "retry_pause: 1h00m is more than 5m00s"),
        ("keep_jobs = -1", "Expected `int` >= 1 - at `$.keep_jobs`"),
        ("keep_events = 999", "Expected `int` >= 1000 - at `$.keep_events`"),
        ("submissions_at_once = 0", "Expected `int` >= 1 - at `$.submissions_at_once`"),
        ("submissions_per_s = 0", "Expected `int` >= 1 - at `$.submissions_per_s`"),
        ('keep_turns = "much"', "'much' is not a size"),
        ("jobs = true", "Expected `int`, got `bool` - at `$.jobs`"),
        ("jobs = nan", "Expected `int`, got `float` - at `$.jobs`"),
        ("keep_for = inf", "'inf' is not a time: write for example 30s"),
        (f"jobs = {10**30}", "Expected `int` <= 1000000 - at `$.jobs`"),
        ("[limits]\njobs = 3", "unknown field `limits`"),
        ("[jobs]\nmost = 3", "jobs: limits are written as NAME = VALUE, not as tables"),
        ("keep_for.days = 3", "keep_for: limits are written as NAME = VALUE, not as tables"),
        ('services = "nobody"', "it must be one of admins, everyone"),
        ("visibility = 1", "it must be one of all, names, own"),
        ("x = " + "[" * 100_000, ""),
    ],
)
def test_a_file_that_is_wrong_stops_the_start(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "limits.toml").write_text(text)
    with pytest.raises(StartupError) as error:
        read_limits(Home(tmp_path))
    assert error.value.info.code == "bad_limits"
    assert str(tmp_path / "limits.toml") in error.value.info.message and part in error.value.info.message
    assert "docs/settings.md" in error.value.info.hint


#: One line for each limit that can be out of bounds.
WRONG = {
    "job_log": '"8KiB"',
    "jobs": "0",
    "keep_for": "0",
    "keep_turns": '"8KiB"',
    "memory": '"8KiB"',
    "retries": "1001",
    "retry_pause": '"1h"',
    "admin_group": '"no-such-group"',
    "services": '"nobody"',
    "speed": "3",
}


@given(st.permutations(sorted(WRONG)))
def test_the_first_that_is_wrong_in_the_file_is_named(names: list[str]) -> None:
    with TemporaryDirectory() as directory:
        home = Home(Path(directory))
        home.limits.write_text("".join(f"{name} = {WRONG[name]}\n" for name in names))
        with pytest.raises(StartupError) as error:
            read_limits(home)
    said = error.value.info.message.removeprefix(str(home.limits))
    assert [name for name in names if re.search(rf"\b{name}\b", said)] == names[:1], said


def test_a_fifo_is_no_file_of_limits(tmp_path: Path) -> None:
    """Nobody might ever write to it."""
    os.mkfifo(tmp_path / "limits.toml")
    with pytest.raises(StartupError, match="not a regular file"):
        read_limits(Home(tmp_path))


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    assert read_limits(Home(tmp_path)) == UserLimits()
    (tmp_path / "limits.toml").write_text('services = "everyone"\n')
    assert read_limits(Home(tmp_path)).services is Audience.EVERYONE
    (tmp_path / "limits.toml").write_text('submission_size = "3MiB"\n')
    assert read_limits(Home(tmp_path)).submission_size == 3 << 20
    (tmp_path / "limits.toml").write_text('retry_pause = 1.5\nkeep_for = "4d03h"\n')
    limits = read_limits(Home(tmp_path))
    assert (limits.retry_pause, limits.keep_for) == (1_500_000, 99 * 3_600_000_000), "a bare number is seconds"


def test_users_run_services_where_an_administrator_allows_that(daemon: Daemon, home: Path) -> None:
    assert as_nobody(daemon, SERVICE) == "not_operator"
    daemon.terminate()
    (home / "limits.toml").write_text('services = "everyone"\n')
    daemon.started()
    job = as_nobody(daemon, SERVICE)
    assert isinstance(job, int) and daemon.wait(job)["outcome"] == "succeeded"


def test_members_of_the_admin_group_administer(make_daemon: Make) -> None:
    daemon = make_daemon(limits=f'admin_group = "{grp.getgrgid(NOBODY).gr_name}"\n').started()
    mine = daemon.python("import signal; signal.pause()")
    assert as_nobody(daemon, POLICY) == "fifo"
    as_nobody(daemon, f"attempt(lambda: daemon.cancel({mine}))")
    assert daemon.wait(mine)["outcome"] == "cancelled"


def test_the_table_says_which_limits_are_set() -> None:
    table = {
        row.name: (row.value, row.source) for row in limits_table(UserLimits(keep_for=Time(DAY_US), core_dumps=False))
    }
    assert table["keep_for"] == ("1d", "limits.toml") and table["core_dumps"] == ("false", "limits.toml")
    times = limits_table(UserLimits(keep_for=Time(DAY_US * 33 // 8)))
    assert [row.value for row in times if row.name == "keep_for"] == ["4d03h"]
    assert table["memory"] == ("none", "default") and table["job_log"] == ("1 GiB", "default")
    assert table["visibility"] == ("names", "default") and len(table) == len(UserLimits.__struct_fields__)


def test_so_does_the_table_of_options() -> None:
    options = parse_options(["--device", "host:64MiB", "--threads", "2", "--telemetry-interval", "500ms"])
    table = {row.name: (row.value, row.source) for row in options.table()}
    assert table["device"] == ("host:64MiB", "carpool up") and table["threads"] == ("2", "carpool up")
    assert table["telemetry-interval"] == ("500ms", "carpool up") and table["log-format"] == ("text", "default")
    assert table["metrics"] == ("none", "default") and table["sharing"] == ("timeslice", "default")


# Changing settings by name


OUT_OF_BOUNDS = {
    "use_estimates": 3,
    "backfill": 9,
    "max_jobs": 0,
    "quantum_us": -1,
    "max_lanes": 10**20,
    "group.vision": -1,
    "group.speech": 10**16,
    "user_running.0": -1,
    "user_devices.no-such-user": 1,
    "no_such": 1,
    "kill_after_us": None,
}


@given(st.permutations(sorted(OUT_OF_BOUNDS)))
def test_the_first_setting_that_is_wrong_is_named(names: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        changed_settings(Settings(), None, {name: OUT_OF_BOUNDS[name] for name in names})
    assert names[0].removeprefix("user_devices.") in re.findall(r"[\w.-]+", str(error.value).split(";")[0])


@pytest.mark.parametrize("user", ["4294967295", "9" * 5000])
def test_a_number_beyond_all_users_is_none(user: str) -> None:
    with pytest.raises(ValueError, match="there is no user"):
        changed_settings(Settings(), None, {f"user_running.{user}": 1})


def test_one_user_under_two_names_has_no_two_limits() -> None:
    with pytest.raises(ValueError, match=r"user_running\.root is given twice"):
        changed_settings(Settings(), None, {"user_running.0": 1, "user_running.root": 2})


@pytest.mark.parametrize("sorts", [(True, False), (False, True)], ids=["policy", "placement"])
def test_a_policy_whose_import_never_ends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sorts: tuple[bool, bool]
) -> None:
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    name = f"{tmp_path / 'endless.py'}:Endless"
    policy, placement = [name if named else None for named in sorts]
    monkeypatch.setattr(settings, "LOAD_LIMIT_S", 0.1)
    with pytest.raises(ValueError, match=r"Endless' cannot be loaded: that took longer than 0\.1 s"):
        changed_settings(Settings(), policy, {}, placement)
    assert not POLICIES.is_registered(name)
