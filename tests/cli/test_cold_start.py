"""What the common commands load: little, because every call pays for it."""

from __future__ import annotations

import os
import subprocess
from urllib.parse import parse_qsl

import msgspec
import pytest

from carpool.cli.main import COMMANDS
from carpool.protocol.api import JobList
from carpool.protocol.client import PAGE
from tests.cli.conftest import Cli
from tests.cli.standin import Answer, Request, StandIn, job

#: `tests/lean` is itself a module named torch.
pytestmark = pytest.mark.usefixtures("whole_torch")
HEAVY = ("aiohttp", "asyncio", "multiprocessing", "numpy", "rich", "sqlite3", "torch")
JOBS = 10_000


def loaded(carpool: Cli, *arguments: str) -> set[str]:
    """The modules in memory at the end of a command."""
    program = f"import sys; from carpool.cli.main import main; main({list(arguments)!r}); print(*sys.modules)"
    result = subprocess.run(
        [carpool.command()[0], "-c", program], env=carpool.env, capture_output=True, text=True, timeout=60
    )
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [["ls"], ["show", "1"], ["logs", "1"], ["submit", "no-such-command"], ["run", "-h"]]
)
def test_common_commands_load_nothing_heavy(standin: StandIn, carpool: Cli, arguments: list[str]) -> None:
    modules = loaded(carpool, *arguments)
    assert not {name for name in modules if name.split(".")[0] in HEAVY}
    assert not {name for name in modules if name.startswith(("carpool.daemon", "carpool.core.machine"))}


@pytest.mark.parametrize(("arguments", "rich"), [(["ls", "--json"], False), (["ls"], True)])
def test_rich_is_loaded_for_a_table_on_a_terminal_only(
    standin: StandIn, carpool: Cli, arguments: list[str], rich: bool
) -> None:
    standin.reactions["GET /v1/jobs"] = Answer(msgspec.json.encode(JobList([job(1)])))
    program = (
        f"import sys; from carpool.cli.main import main; main({arguments!r}); print(*sys.modules, file=sys.stderr)"
    )
    ours, theirs = os.openpty()
    command = [carpool.command()[0], "-c", program]
    result = subprocess.run(command, env=carpool.env, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(theirs)
    os.close(ours)
    assert ("rich" in result.stderr.split()) == rich


def test_ls_loads_no_other_command(standin: StandIn, carpool: Cli) -> None:
    modules = {name for name in loaded(carpool, "ls") if name.startswith("carpool.cli.commands.")}
    assert modules == {"carpool.cli.commands.jobs", "carpool.cli.commands.jobs.ls"}


def test_every_command_has_help_and_its_common_options(carpool: Cli) -> None:
    listed = carpool.ok("--help")
    for name in COMMANDS:
        assert f"  {name} " in listed
        shown = carpool.ok(name, "--help")
        if name == "kernel":  # a group of commands
            shown = carpool.ok(name, "install", "--help")
        assert "--json" in shown
        assert "--home" in shown


def test_ls_prints_ten_thousand_jobs_that_come_in_pages(standin: StandIn, carpool: Cli) -> None:
    rows = [job(n, name=f"sweep-{n}") for n in range(1, JOBS + 1)]

    def answer(request: Request) -> Answer:
        asked = {name: int(value) for name, value in parse_qsl(request.query) if name != "phase"}
        known = rows[: asked["before"] - 1] if "before" in asked else rows
        return Answer(msgspec.json.encode(JobList(known[-asked["limit"] :] if "limit" in asked else known)))

    standin.reactions["GET /v1/jobs"] = answer
    lines = carpool.ok("ls", "--all").splitlines()
    assert len(standin.requests) == JOBS // PAGE + 1
    assert len(lines) == JOBS + 1
    assert lines[-1].split()[:2] == [str(JOBS), f"sweep-{JOBS}"]
