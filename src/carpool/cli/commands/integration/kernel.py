"""``carpool kernel``: Jupyter kernels that run under Carpool."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import Parsed, answer, pass_on_common_options, with_common_options
from carpool.cli.request.command_line import python_for
from carpool.protocol.paths import default_home, expanded

NAME = re.compile(r"[A-Za-z0-9._-]+")
PATIENCE_S = 60.0


def kernel_name(text: str) -> str:
    """Return the name in lower case, as Jupyter takes it.  Raises ValueError, for people."""
    if not NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name for a kernel: use letters, digits, '.', '_' and '-'")
    return text.lower()


@click.group("kernel", short_help="Jupyter kernels that run under Carpool.")
@with_common_options
@click.pass_context
def command(context: click.Context, home: Path, as_json: bool) -> None:
    """Jupyter kernels that run under Carpool: an idle notebook holds no device."""
    pass_on_common_options(context, command.commands)


@command.command("install", short_help="Add a kernel to Jupyter's list.")
@click.option(
    "--python",
    metavar="PATH",
    help="Interpreter of the notebooks, which needs ipykernel.  [default: python of the active environment]",
)
@click.option(
    "--name", default="carpool", show_default=True, type=Parsed("name", kernel_name), help="Name of the kernel."
)
@click.option(
    "--display-name",
    metavar="TEXT",
    help="Name in Jupyter's list.  [default: Python (Carpool), with another NAME: Python (NAME)]",
)
@click.option(
    "--prefix", metavar="DIR", help="Install below DIR/share/jupyter.  [default: Jupyter's directory of this user]"
)
@with_common_options
def install(
    home: Path, as_json: bool, python: str | None, name: str, display_name: str | None, prefix: str | None
) -> int:
    """Write a kernel specification that starts kernels with `carpool run`, and print its directory.

    Each notebook with that kernel is a job: the notebook's memory is on the device while a cell computes, and makes
    room for other jobs between cells.  A kernel of the same name is replaced.
    """
    interpreter = _interpreter(python)
    title = display_name or f"Python ({'Carpool' if name == 'carpool' else name})"
    directory = _data_directory(prefix) / "kernels" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "kernel.json").write_text(json.dumps(_specification(interpreter, title, home), indent=1) + "\n")
    made = {"name": name, "directory": directory, "python": interpreter[0]}
    return answer(as_json, made, lambda: [f"kernel {name}: {directory}"])


def _specification(interpreter: list[str], title: str, home: Path) -> dict[str, object]:
    chosen = [] if home == default_home({}) else ["--home", str(home)]
    job = [*interpreter, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    argv = [*_carpool(), "run", *chosen, "--name", "notebook", "--", *job]
    return {"argv": argv, "display_name": title, "language": "python", "metadata": {"debugger": True}}


def _carpool() -> list[str]:
    """Return the command line of this very Carpool, independent of where Jupyter looks for programs."""
    script = Path(sys.executable).with_name("carpool")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "carpool.cli"]


def _interpreter(python: str | None) -> list[str]:
    """Return the interpreter's full path, and -P if the interpreter knows that option.  Raises Problem."""
    found = shutil.which(str(expanded(python))) if python else python_for(os.environ)
    if found is None:
        raise Problem(Exit.NOT_FOUND, "no_python", f"there is no interpreter {python}", "check --python")
    path = os.path.abspath(found)  # noqa: PTH100 - links stay: an environment's python is one
    probe = [path, "-c", "import ipykernel, sys; print(sys.version_info >= (3, 11))"]
    try:
        done = subprocess.run(probe, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(Exit.FAILED, "no_python", f"{path} cannot be tried: {error}", "check --python") from None
    if done.returncode != 0:
        raise Problem(
            Exit.FAILED,
            "no_ipykernel",
            f"{path} has no ipykernel",
            f"{path} -m pip install ipykernel, or --python PATH",
        )
    return [path, "-P"] if done.stdout.strip() == "True" else [path]


def _data_directory(prefix: str | None) -> Path:
    """Return where Jupyter looks (jupyter_core.paths): the user's own data directory, or that of an installation."""
    if prefix is not None:
        return expanded(prefix).absolute() / "share" / "jupyter"
    if own := os.environ.get("JUPYTER_DATA_DIR"):
        return expanded(own).absolute()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else expanded("~/.local/share")) / "jupyter"
