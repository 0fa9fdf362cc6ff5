"""Everything that can keep a daemon from starting gives one clear message and changes nothing."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from carpool.daemon.config.options import default_capacity
from carpool.daemon.journal.schema import open_journal, upgrade
from carpool.daemon.system.errors import StartupError
from tests.daemon.daemon_harness import Daemon, Make, Refused, as_nobody, submission
from tests.daemon.journal_file import sql
from tests.live import python_path

MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user, or mount")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--device", "host:64TiB"), "device_too_large", "memory"),
        (("--device", "host:much"), "bad_size", "is not a size"),
        (("--device", "host:1B"), "bad_size", "page"),
        (("--device", "host:1"), "bad_size", "did you mean 1GiB?"),
        (("--device", "tpu:1GiB"), "unknown_device_kind", "tpu"),
        (("--policy", "best"), "bad_setting", "known policies"),
        (("--set", "speed=9"), "bad_setting", "known settings"),
        (("--set", "quantum_us"), "bad_setting", "NAME=VALUE"),
        (("--threads", "0"), "bad_option", "positive"),
        (("--log-format", "xml"), "bad_option", "choose from"),
        (("--store", "much"), "bad_size", "much"),
        (("--store", "800TiB"), "store_too_large", ""),
        (("--sharing", "mps"), "no_gpu_given", "is for GPUs"),
        (("--device", "cuda:0:"), "bad_size", "follows the last colon"),
        (("--device", "host:"), "bad_size", "follows the last colon"),
        (("--device", "cuda:0:1KiB"), "bad_size", "at least 2 MiB"),
        (("--sharing", "mps", "--device", "host:64MiB"), "no_gpu_given", "is for GPUs"),
        (("--telemetry-interval", "5ms"), "bad_interval", "between 100 ms and 60 s"),
        (("--telemetry-interval", "often"), "bad_interval", "is not a time"),
        (("--no-such-option",), "bad_option", "no-such-option"),
        (("--polcy", "fair"), "bad_option", "did you mean '--policy'?"),
        (("--policy", "fiar"), "bad_setting", "did you mean 'fair'?"),
        (("--device", "cdua"), "unknown_device_kind", "did you mean 'cuda'?"),
    ],
)
def test_bad_options(make_daemon: Make, arguments: tuple[str, ...], code: str, text: str) -> None:
    error = make_daemon(*arguments).failed()
    assert error["code"] == code and text in error["message"] + error["hint"]


def test_the_default_device_suits_the_machine() -> None:
    assert default_capacity(400 * MIB) == 256 * MIB
    assert default_capacity(4096 * MIB + 5) == 1024 * MIB
    assert default_capacity(1 << 42) == 16 << 30


def test_one_daemon_per_home(make_daemon: Make) -> None:
    first = make_daemon().started()
    error = make_daemon(at=first.home).failed()
    assert error["code"] == "already_running" and str(first.process.pid) in error["message"]
    assert first.get("/v1/version")["pid"] == first.process.pid


def test_daemons_side_by_side(make_daemon: Make, home: Path) -> None:
    daemons = [make_daemon(at=home.with_name(name)).started() for name in ("a", "b")]
    jobs = [daemon.python("pass") for daemon in daemons]
    assert [daemon.wait(job)["outcome"] for daemon, job in zip(daemons, jobs, strict=True)] == ["succeeded"] * 2


@pytest.mark.parametrize("intact", [0, 4096], ids=["no database", "damaged pages"])
def test_a_journal_that_is_damaged(daemon: Daemon, intact: int) -> None:
    daemon.wait(daemon.python("pass"))
    daemon.stop()
    journal = daemon.home / "journal.sqlite"
    damaged = journal.read_bytes()[:intact].ljust(journal.stat().st_size, b"\xa5")
    journal.write_bytes(damaged)
    error = daemon.failed()
    assert error["code"] == "journal_broken" and f"mv {journal}" in error["hint"]
    assert journal.read_bytes() == damaged
    journal.rename(journal.with_suffix(".broken"))
    assert daemon.started().get("/v1/jobs")["jobs"] == []


@pytest.mark.parametrize(
    ("statement", "code", "text"),
    [
        ("UPDATE meta SET value = '7' WHERE key = 'version'", "journal_newer", "version 7, this one knows 1"),
        ("UPDATE meta SET key = 'schema', value = '4' WHERE key = 'version'", "journal_unreleased", "another --home"),
        ("UPDATE meta SET value = 'x' WHERE key = 'version'", "journal_broken", "which version"),
    ],
)
def test_the_journal_of_another_version(daemon: Daemon, statement: str, code: str, text: str) -> None:
    daemon.stop()
    journal = daemon.home / "journal.sqlite"
    sql(journal, statement)
    before = journal.read_bytes()
    error = daemon.failed()
    assert error["code"] == code and text in error["message"] + error["hint"]
    assert journal.read_bytes() == before


def stored_journal(path: Path) -> Path:
    """Write the kept journal of version 1 to ``path``."""
    with sqlite3.connect(path) as connection:
        connection.executescript((Path(__file__).parent / "data" / "journal-1.sql").read_text())
        connection.execute("UPDATE jobs SET owner = ?, gid = ?", (os.getuid(), os.getgid()))
        connection.execute("UPDATE models SET owner = ?", (os.getuid(),))
    connection.close()
    return path


def test_a_journal_of_version_1_goes_on(make_daemon: Make, home: Path) -> None:
    home.mkdir()
    stored_journal(home / "journal.sqlite")
    daemon = make_daemon().started()
    assert daemon.show(1)["iterations"] == 100
    waited = daemon.wait(3)
    assert (waited["outcome"], waited["attempt"]) == ("succeeded", 2)
    assert [model["name"] for model in daemon.get("/v1/models")["models"]] == ["bert"]
    assert daemon.get("/v1/policy")["name"] == "srtf"
    assert daemon.get("/v1/devices")["devices"][0]["quantum_us"] == 7_000
    listed = daemon.get("/v1/jobs")
    assert [job["id"] for job in listed["jobs"]] == [1, 3] and not listed["notice"]
    assert daemon.events()[-1]["seq"] > 41 and daemon.python("pass") == 4


def test_a_journal_of_version_1_is_like_a_new_one(tmp_path: Path) -> None:
    """The same tables with the same columns; and opening it again changes nothing."""
    path = stored_journal(tmp_path / "old.sqlite")
    new = columns(tmp_path / "new.sqlite")
    assert columns(path) == columns(path) == new


def columns(path: Path) -> dict[str, set[str]]:
    """Of each table, after it has been opened; the version with them."""
    with closing(open_journal(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} for table in tables}
        return found | {"version": {version(connection)}}


def version(connection: sqlite3.Connection) -> str:
    return str(connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])


#: Migrations of versions to come: one adds a column, the other one changes what a row says.
MIGRATIONS = ("ALTER TABLE jobs ADD COLUMN colour TEXT", "UPDATE jobs SET colour = 'green' WHERE id = 3")


def test_a_journal_is_migrated_version_by_version(tmp_path: Path) -> None:
    path = stored_journal(tmp_path / "journal.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert upgrade(connection, path, MIGRATIONS) == 1
        assert connection.execute("SELECT id, colour FROM jobs").fetchall() == [(1, None), (3, "green")]
        assert version(connection) == "3" and upgrade(connection, path, MIGRATIONS) == 3
        with pytest.raises(StartupError, match="newer"):
            upgrade(connection, path)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = stored_journal(tmp_path / "journal.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, pytest.raises(sqlite3.OperationalError):
        upgrade(connection, path, (f"{MIGRATIONS[0]}; UPDATE none SET x = 1",))
    with closing(sqlite3.connect(path)) as connection:
        assert version(connection) == "1"
        assert "colour" not in [row[1] for row in connection.execute("PRAGMA table_info(jobs)")]


def in_the_way(home: Path) -> None:
    home.mkdir()
    (home / "carpool.sock").write_text("a file")


def recipes(home: Path) -> None:
    home.mkdir()
    sql(home / "journal.sqlite", "CREATE TABLE recipes (name TEXT)")


@pytest.mark.parametrize(
    ("name", "prepare", "code"),
    [
        ("home", in_the_way, "not_a_socket"),
        ("home", recipes, "journal_broken"),
        ("x" * 120, lambda _home: None, "path_too_long"),
        ("file/home", lambda home: home.parent.write_text(""), "home_unusable"),
    ],
    ids=["something in the way of the socket", "another program's journal", "a long path", "a home in a file"],
)
def test_homes_that_cannot_be_used(
    make_daemon: Make, tmp_path: Path, name: str, prepare: Callable[[Path], object], code: str
) -> None:
    prepare(tmp_path / name)
    assert make_daemon(at=tmp_path / name).failed()["code"] == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("limits.toml", "bad_limits"),
        ("journal.sqlite", "journal_unusable"),
        ("journal.sqlite-wal", "system_error"),
        pytest.param("control-groups", None, id="a record that can be made again"),
    ],
)
def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(
    make_daemon: Make, home: Path, name: str, code: str | None
) -> None:
    home.mkdir(mode=0o700)
    os.mkfifo(home / name)
    if code is None:
        make_daemon().started()
        return
    error = make_daemon().failed()
    assert (error["code"], name in error["message"]) == (code, True), error


def test_a_home_on_a_full_disk(make_daemon: Make, home: Path) -> None:
    home.mkdir()
    (home / "daemon.pid").symlink_to("/dev/full")
    error = make_daemon().failed()
    assert (error["code"], "daemon.pid" in error["message"]) == ("home_unusable", True)


def test_whoever_waits_hears_of_it_where_the_log_is_full(home: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "carpool.daemon", "--home", str(home), "--device", "tpu", "--ready-fd", "1"],
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=60,
        )
    assert result.returncode == 1
    assert json.loads(result.stdout)["error"]["code"] == "unknown_device_kind"


@needs_root
def test_the_home_of_another_user(make_daemon: Make, home: Path) -> None:
    home.mkdir()
    os.chown(home, 65534, 65534)
    error = make_daemon().failed()
    assert error["code"] == "home_of_another_user" and "belongs to user nobody, you are root" in error["message"]


@pytest.mark.parametrize("place", ["", "jobs"])
def test_a_home_that_others_may_write_to(make_daemon: Make, home: Path, place: str) -> None:
    """They could put links there, and a daemon of root would follow them."""
    (home / "jobs").mkdir(parents=True)
    (home / place).chmod(0o777)
    error = make_daemon().failed()
    assert error["code"] == "home_writable" and "mode 777" in error["message"] and "chmod go-w" in error["hint"]
    (home / place).chmod(0o755)
    make_daemon().started()


@needs_root
def test_the_socket_of_another_user(make_daemon: Make, home: Path) -> None:
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "carpool.sock"))
    os.chown(home / "carpool.sock", 65534, 65534)
    assert make_daemon().failed()["code"] == "socket_of_another_user"


@pytest.fixture
def small_disk(home: Path) -> object:
    """A file system of 2 MiB at the home."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0711", "none", home], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"this root may not mount: {mounted.stderr.decode().strip()}")
    yield home
    subprocess.run(["umount", "-l", home], check=True)


def test_a_full_disk_refuses_submissions_and_loses_nothing(small_disk: Path, daemon: Daemon, fifo: Path) -> None:
    waiting = daemon.python(f"open({str(fifo)!r}).read()")
    accepted = []
    body = submission("true", env={"PADDING": "x" * 100_000}, after=[waiting])
    with pytest.raises(Refused) as refused:
        for _ in range(200):
            accepted.append(daemon.post("/v1/jobs", body)["id"])  # noqa: PERF401 - what was accepted before the refusal
    assert (refused.value.status, refused.value.code) == (507, "disk_full") and refused.value.hint
    assert accepted, "the disk was full from the beginning"
    assert [job["id"] for job in daemon.get("/v1/jobs")["jobs"]] == [waiting, *accepted]
    with pytest.raises(Refused, match=f"there is no job {accepted[-1] + 1}"):
        daemon.show(accepted[-1] + 1)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    later = daemon.submit("true")
    fifo.write_text("there is room")
    for job in (waiting, *accepted, later):
        assert daemon.wait(job)["outcome"] == "succeeded", daemon.log()
    daemon.restarted()
    outcomes = {job["id"]: job["outcome"] for job in daemon.get("/v1/jobs")["jobs"]}
    assert outcomes == dict.fromkeys((waiting, *accepted, later), "succeeded")
    daemon.stop()


def test_a_second_user_touches_only_what_is_theirs(daemon: Daemon, home: Path) -> None:
    mine = daemon.python("print('secret'); import signal; signal.pause()", line="secret")
    assert as_nobody(daemon, f"attempt(lambda: daemon.cancel({mine}))") == "not_owner"
    assert as_nobody(daemon, f"attempt(lambda: daemon.output({mine}))") == "not_owner"
    assert as_nobody(daemon, "attempt(lambda: daemon.put('/v1/policy', {'name': 'fifo'}))") == "not_operator"
    assert as_nobody(daemon, "attempt(lambda: daemon.post('/v1/shutdown', {}))") == "not_operator"
    assert as_nobody(daemon, f"attempt(lambda: open('{home}/journal.sqlite'))") == "PermissionError"
    assert as_nobody(daemon, f"attempt(lambda: open('{home}/jobs/{mine}/log'))") == "PermissionError"
    assert daemon.show(mine)["phase"] == "running"
    daemon.cancel(mine)
    theirs = as_nobody(daemon, "daemon.submit('sh', '-c', 'id -u; id -G; ls -d .', cwd='/tmp')")
    info = daemon.wait(theirs)
    assert (info["owner"], info["outcome"]) == (65534, "succeeded"), info
    assert as_nobody(daemon, f"daemon.output({theirs})") == "65534\n65534\n.\n"


@needs_root
def test_an_ordinary_users_daemon_serves_only_that_user(home: Path, make_daemon: Make) -> None:
    """A daemon of uid 65534 with its socket opened up: another ordinary user is refused all the same."""
    home.parent.chmod(0o777)
    become = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    starter = f"import os, sys; from carpool.daemon.__main__ import main; {become}; sys.exit(main())"
    command = [sys.executable, "-c", starter, "--home", str(home), "--device", "host:64MiB"]
    read_end, write_end = os.pipe()
    env = os.environ | {"PYTHONPATH": python_path(Path(__file__).resolve().parents[2] / "src")}
    with (
        subprocess.Popen([*command, "--ready-fd", str(write_end)], pass_fds=(write_end,), env=env) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        os.close(write_end)
        with open(read_end) as pipe:
            assert '"ok":true' in pipe.readline()
        assert (home / "carpool.sock").stat().st_mode & 0o777 == 0o600
        daemon = Daemon(home)
        (home / "carpool.sock").chmod(0o666)
        home.chmod(0o711)
        assert as_nobody(daemon, "attempt(lambda: daemon.submit('true'))", uid=65533) == "other_user"
        daemon.post("/v1/shutdown", {})
        assert process.wait(30) == 0
