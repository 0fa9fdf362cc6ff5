"""``carpool completion``: a script that completes commands, options, jobs and policies."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from carpool.cli.base.options_common import answer, with_common_options

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@with_common_options
def command(home: Path, as_json: bool, shell: str) -> int:
    """Print the completion script for a shell.

    \b
    bash:  eval "$(carpool completion bash)"    in ~/.bashrc
    zsh:   eval "$(carpool completion zsh)"     in ~/.zshrc, after compinit
    fish:  carpool completion fish > ~/.config/fish/completions/carpool.fish
    """
    from carpool.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None  # `SHELLS` are those that click has
    script = kind(cli, {}, "carpool", "_CARPOOL_COMPLETE").source()
    return answer(as_json, {"shell": shell, "script": script}, lambda: [script])
