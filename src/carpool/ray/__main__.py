"""``python -m carpool.ray``: the variables and resources that a shell needs to start Ray on a node."""

from __future__ import annotations

import json
import shlex
import sys

import click

from carpool.ray.node import SHARES, NodeNotReady, node_resources, node_variables


@click.group()
def main() -> None:
    """Prepare a node for tasks and actors that share its devices, before `ray start`."""


@main.command()
def variables() -> None:
    """Print the variables with which Ray is to be started, for a shell's eval."""
    for name, value in node_variables().items():
        click.echo(f"export {name}={shlex.quote(value)}")


@main.command()
@click.option("--shares", type=click.IntRange(min=1), default=SHARES, show_default=True, help="Of each device.")
def resources(shares: int) -> None:
    """Print the custom resources of this node, for `ray start --resources`."""
    click.echo(json.dumps(node_resources(shares)))


if __name__ == "__main__":
    try:
        main(prog_name="python -m carpool.ray")
    except NodeNotReady as error:
        sys.exit(f"carpool: error: {error}")
