"""Writes the generated parts of the docs: ``python docs/generate.py``.  A test checks that they are current."""

from __future__ import annotations

import ast
import dataclasses
import io
import json
import os
import re
import tokenize
from pathlib import Path

import click
import msgspec

from carpool.cli.base.cli_error import MEANINGS
from carpool.cli.base.presets import PRESETS
from carpool.cli.main import COMMANDS, cli
from carpool.core import model
from carpool.core.memory.preemption import PREEMPTION
from carpool.core.memory.residency import RESIDENCY
from carpool.core.placement.filters import FILTERS
from carpool.core.state.seat_states import PreemptState, ResidencyState, TurnState
from carpool.core.turns.turns import TURNS
from carpool.daemon.config import limits
from carpool.protocol import api
from carpool.protocol.setting_text import format_setting, setting_text

DOCS = Path(__file__).parent
WIDTH = 100
#: Fields of `Settings` that no user sets by name and number: the driver decides, or policies have names of their own.
NOT_NUMBERS = ("allocation", "named_limits", "extra")
AT_ONCE = """## Limits on what runs at once

Administrators set these with `carpool set`; they hold at once and under the next daemon. `carpool limits` shows every
user what holds for them, and what is used.

| for example | is about |
| --- | --- |
| `user_running=4` | jobs that one user has on devices at once |
| `user_devices=2` | devices that these jobs are on |
| `user_running.anna=8`, `user_devices.anna=4` | the same for one user (name or uid), instead of what holds for all |
| `group.vision=2` | jobs of the group (`carpool submit --group vision`) on devices at once, of all users |

Setting `group.vision` makes the group, and `group.vision=default` takes it away; then its jobs have no limit. 0 lets
none start. A job counts from its placement to its end, also while it is paused. A job that is over a limit waits, says
so in `carpool ls`, and holds up no job of other users: later jobs pass it under every policy, and no device is kept for
it. Where later jobs of the same user or group have passed it for `reserve_after_us`, or where it has run out of memory,
they leave it the next place. A job for several devices counts with all of them. Lowering a limit stops nothing.
Workers of models do not count. Administrators' own jobs have limits like all others. In the simulator these limits are
for lanes, and not for whole devices.

"""
VISIBILITY = """### What users see of each other's jobs

| `visibility` | of the jobs of other users everybody sees |
| --- | --- |
| `all` | everything but logs |
| `names` | number, name, owner (uid), state, exit code, device, lane, process number, sizes, iterations, times, \
the jobs before it. Of reasons the code is left; of events number, time, kind and job |
| `own` | nothing: the jobs are missing in lists, on devices, in events and in `carpool usage`, and requests for them \
are answered as for unknown jobs. Figures of devices are sums over all jobs all the same; \
reasons say "another user's job" |

Fields that are hidden stay in JSON answers, empty or null. Owners see all of their own jobs, administrators all of
everybody's. No other user reads logs, and no answer has the environment of a job. Carpool hides nothing that the system
itself shows: where `/proc` is not mounted with `hidepid=2`, users of one machine see each other's processes and
command lines there. Jobs and events of all users are numbered in one sequence, so a user can tell how many there are.
"""
CORES = """### Core dumps

A core dump never has the memory of tensors, of weights or of what has been offloaded: for a dump the kernel would fill
that memory up to the size of the device and more, however little was granted. All else is there, so that a debugger
shows where every thread was and what lies on the heap. With `core_dumps = false` jobs leave none (a limit of 1 byte,
which also stops programs that the kernel hands core dumps to); otherwise a job has the limit that the daemon was
started with (`ulimit -c`).
"""
GROUPS = """### Control groups

`processes` and `memory` need control groups that the daemon may make, with the controllers `pids` and `memory`.
Whether they hold is in the log at the daemon's start, and in `carpool doctor`. A daemon of root has them on machines
with version 1, also beside version 2. Where there is version 2 alone, start the daemon by the unit that
[`carpool install-unit`](shared-server.md#a-unit-for-systemd) writes, and give the daemon a group of its own there
(`systemctl edit carpool`; systemd 254 or newer):

```ini
[Service]
DelegateSubgroup=carpool-daemon
```

Without any limit no controller is needed: each job has a group wherever there is version 2 of control groups and the
daemon may write there, and nothing of the job outlives its end.

`memory` counts all that a user's jobs have together on the host, memory of host devices and of host stores included.
Above it the kernel ends the largest of that user's jobs, and the job's reason says so. `processes` counts threads, too;
a program with PyTorch has some tens of them. A changed `memory` holds for jobs that run, too; a changed `processes` for
jobs that start from then on. Both hold for commands of notices (`--notify exec:`), too.
"""
KEEPING = """### How long jobs are kept

The daemon looks when it starts and then every hour. What goes with a job is its row in lists and in the journal, its
attempts and its directory with its logs; events go when they are older than `keep_for`, or than every job that is
kept. The number of a removed job is not given again, and `carpool show` says that the job has been removed. Number and
size are counted for each user. A job stays for an hour after its end, and for as long as jobs that have not ended wait
for it by `--after`; the job with the highest number always stays. Of a user who has twice as many ended jobs as
`keep_jobs` says, or as large ones, the oldest go within seconds, young ones too. Of events (turns and the like, which
have a limit of their own, are not counted) there are no more than `keep_events`: of more, the oldest go of the user
who has the most, so that no user pushes the history of others out. Who had
which turn has a limit of its own, too, `keep_turns` ([how](timeline.md#the-history-of-turns)). What
estimates learn from (the last 20 runs of each command) is kept apart and stays. A server with 100 jobs a day keeps
9,000 jobs at the defaults: with logs of a megabyte 9 GB, in the journal about 150 MB, in the daemon's memory about 20
MB.
"""
NOTE = "<!-- Written by docs/generate.py: change the source it names, not this page. -->\n"


def cli_page() -> str:
    parts = [
        f"# Command line\n\n{NOTE}",
        "The same as `carpool COMMAND --help`, from `src/carpool/cli`.  Examples are in the [guide](guide.md).\n",
        "## Exit codes\n\n" + exit_code_table(),
        "`carpool run` and `carpool wait` pass on the exit code of the job, 128 + n for one killed by signal n.\n",
    ]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        parts += command_sections(command, name, click.Context(cli, info_name="carpool", **cli.context_settings), "##")
    return "\n".join(parts)


def command_sections(command: click.Command, name: str, parent: click.Context, mark: str) -> list[str]:
    """The help of a command, then that of its subcommands."""
    context = click.Context(command, info_name=name, parent=parent)
    context.terminal_width = WIDTH
    sections = [f"{mark} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"]
    for below, subcommand in sorted(command.commands.items()) if isinstance(command, click.Group) else ():
        sections += command_sections(subcommand, below, context, mark + "#")
    return sections


def exit_code_table() -> str:
    rows = "".join(f"| {code.value} | {meaning} |\n" for code, meaning in MEANINGS.items())
    return f"| code | meaning |\n| --- | --- |\n{rows}"


def settings_page() -> str:
    presets = "".join(
        f"| `{name}` | {preset.about} | `{preset.policy}` | {_pairs(preset.settings)} |\n"
        for name, preset in sorted(PRESETS.items())
    )
    return (
        f"# Settings\n\n{NOTE}\n"
        "Settings of the core, from `carpool.core.model.Settings`.  `carpool set` shows the eight that matter\n"
        "most, and what differs from its default; `carpool set --all` shows all values of this page, with those that\n"
        "`limits.toml` and [`carpool up`](cli.md#carpool-up) have set, and where each comes from.\n"
        "`carpool set NAME=VALUE` changes them on the running daemon; `carpool up --set NAME=VALUE`\n"
        "starts with them.  Times and sizes have units, and shares are percentages: `quantum=50ms`,\n"
        "`growth_step=4MiB`, `risk_active=80%`; `1h06m` and `1.5 GiB` are understood, too.  A time without a unit\n"
        "is seconds, a size without one is refused.  In JSON times are microseconds, shares millionths, sizes bytes:\n"
        "there names end in `_us` and `_ppm`, which may be left out on the command line.\n"
        "Settings whose default is none also take the value `default`.  Where `host_store` is not set, the daemon\n"
        "takes half of the memory that the devices leave.  With `--device`, `carpool set` changes a device's own\n"
        "`quantum_us`, `oversubscribe` (`auto`, `on`, `off`) and `reserve`, memory that is kept for\n"
        "[other programs](other-programs.md).\n\n"
        "| setting | default | meaning |\n| --- | --- | --- |\n"
        f"{''.join(_setting_rows())}\n"
        "## Presets\n\n`carpool up --preset NAME` behaves as a published system.\n\n"
        f"| preset | what it does | policy | settings |\n| --- | --- | --- | --- |\n{presets}\n"
        f"{AT_ONCE}"
        "## Limits for users\n\n"
        "`limits.toml` in the daemon's home (`carpool doctor` says where that is) says what users of a shared daemon\n"
        "may do.  The daemon reads the file when it starts, and refuses to start with a name or value that it does\n"
        "not know.  Uids of a range in `/etc/subuid` count as the range's owner, who has each limit once.  For\n"
        "example:\n\n"
        '```toml\nadmin_group = "gpu-admins"\nservices = "everyone"\nkeep_for = "30d"\n```\n\n'
        "| limit | default | meaning |\n| --- | --- | --- |\n"
        f"{''.join(_limit_rows())}\n"
        f"{KEEPING}\n"
        f"{CORES}\n"
        f"{GROUPS}\n"
        f"{VISIBILITY}"
    )


def _pairs(settings: dict[str, int]) -> str:
    return ", ".join(f"`{setting_text(name, value)}`" for name, value in settings.items())


def _setting_rows() -> list[str]:
    comments = _field_comments(Path(model.__file__), "Settings")
    return [
        f"| `{field.name}` | {_default(field)} | {comments.get(field.name, '')} |\n"
        for field in dataclasses.fields(model.Settings)
        if field.name not in NOT_NUMBERS
    ]


def _limit_rows() -> list[str]:
    comments = _field_comments(Path(limits.__file__), "UserLimits")
    fields = msgspec.structs.fields(limits.UserLimits)
    return [f"| `{field.name}` | {_limit(field.default)} | {comments[field.name]} |\n" for field in fields]


def _limit(value: object) -> str:
    if isinstance(value, limits.Size | limits.Time):
        return f'`"{limits.written(value)}"`'
    return "none" if value is None else f"`{json.dumps(value)}`"


def _default(field: dataclasses.Field[object]) -> str:
    value = field.default
    if value is None:
        return "none"
    return f"`{value if isinstance(value, str) else format_setting(field.name, value)}`"


def _field_comments(source: Path, class_name: str) -> dict[str, str]:
    """The comment behind each field: the one place where a setting is described."""
    text = source.read_text()
    (body,) = (n.body for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == class_name)
    lines = {
        line: node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    return {name: comments[line] for line, name in lines.items() if line in comments}


def guide_page(text: str) -> str:
    """The guide with its generated table renewed."""
    return _with_table(text, "exit codes", exit_code_table())


def telemetry_page(text: str) -> str:
    """The page on telemetry with its table of quantities renewed."""
    comments = _field_comments(Path(api.__file__), "TelemetryInfo")
    rows = "".join(f"| `{name}` | {comments.get(name, '')} |\n" for name in api.TelemetryInfo.__struct_fields__)
    return _with_table(text, "quantities", f"| name | what it is |\n| --- | --- |\n{rows}")


def placement_page(text: str) -> str:
    """The page on placement with its table of reasons renewed."""
    rows = "".join(f"| {_names(each.codes)} | {each.waits} | {_names(each.settings)} |\n" for each in FILTERS)
    return _with_table(text, "reasons", f"| reason | the job waits for | settings |\n| --- | --- | --- |\n{rows}")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def seat_page(text: str) -> str:
    """The page on the seat with its tables of words and packets renewed from ``src/native/abi/seat.h``."""
    header = (DOCS.parent / "src" / "native" / "abi" / "seat.h").read_text()
    record = header[header.index("struct cp_seat {") : header.index("_Static_assert(sizeof(struct cp_seat)")]
    words = "".join(
        f"| {offset} | `{name}` | {bits} | {_cell(comment)} |\n"
        for bits, name, offset, comment in re.findall(r"uint(\d+)_t (\w+);\s*/\*\s*(\d+) (.*?) ?\*/", record)
    )
    packets = "".join(
        f"| {number} | `{name}` | {_cell(comment)} |\n"
        for name, number, comment in re.findall(
            r"CP_(\w+) = (\d+),?\s*/\* (.*?) \*/", header[header.index("cp_packet") :]
        )
    )
    text = _with_table(
        text, "seat", f"| offset | word | bits | writer, and meaning |\n| --- | --- | --- | --- |\n{words}"
    )
    return _with_table(text, "packets", f"| number | packet | meaning |\n| --- | --- | --- |\n{packets}")


def _cell(comment: str) -> str:
    return comment.replace("|", "\\|")


def states_page(text: str) -> str:
    """The page on states with its diagrams drawn anew from the core's tables."""
    diagrams = {
        "states of a turn": TURNS.mermaid(TurnState.IDLE),
        "states of preemption": PREEMPTION.mermaid(PreemptState.NONE),
        "states of residency": RESIDENCY.mermaid(ResidencyState.RESIDENT),
    }
    for what, diagram in diagrams.items():
        text = _with_table(text, what, f"```mermaid\n{diagram}```\n")
    return text


def _with_table(text: str, what: str, table: str) -> str:
    """The page with the table between its marks."""
    pattern = rf"(<!-- {what}: written by docs/generate.py -->\n).*?(<!-- end -->)"
    new, count = re.subn(pattern, lambda match: f"{match[1]}\n{table}\n{match[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"a page has lost the marks around its table of {what}")
    return new


def pages() -> dict[Path, str]:
    """What each generated page should contain."""
    os.environ.pop("COLUMNS", None)
    guide, telemetry, placement = DOCS / "guide.md", DOCS / "telemetry.md", DOCS / "placement.md"
    seat, states = DOCS / "internals" / "seat.md", DOCS / "internals" / "states.md"
    return {
        DOCS / "cli.md": cli_page(),
        DOCS / "settings.md": settings_page(),
        guide: guide_page(guide.read_text()),
        telemetry: telemetry_page(telemetry.read_text()),
        placement: placement_page(placement.read_text()),
        seat: seat_page(seat.read_text()),
        states: states_page(states.read_text()),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path)
