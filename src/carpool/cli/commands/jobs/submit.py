"""``carpool submit``: submit jobs, and return at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import answer, with_common_options
from carpool.cli.request.awaited_jobs import awaited_jobs
from carpool.cli.request.job_options import submission, with_submission_options
from carpool.cli.request.script import Script, script_of
from carpool.options.arrays import ArrayRange
from carpool.protocol.api import SubmitManyRequest, SubmitManyResponse, SubmitResponse
from carpool.protocol.estimates import AT_SUBMISSION

_LITERAL = "carpool.literal"


class Submit(click.Command):
    """Remembers whether ``--`` stands before the command: then its first word is not a job file, nor read as a script.

    Options of a script come before those of the command line, which prevail.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and the options of a script if the first word names one."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        before = len(given) - len(words)
        ctx.meta[_LITERAL] = bool(words) and before > 0 and given[before - 1] == "--"
        script = None if ctx.meta[_LITERAL] or not words else script_of(words[0])
        if script is not None:
            ctx.params.clear()
            super().parse_args(ctx, [*self._said_by(script, ctx), *given[:before]])
            ctx.params["words"] = (*script.command, *words[1:])
        return rest

    def _said_by(self, script: Script, ctx: click.Context) -> list[str]:
        """Return all options of a script, each line checked by itself.  Raises UsageError, which names the line."""
        for number, words in script.lines:
            line = click.Context(self, parent=ctx.parent, info_name=ctx.info_name)
            try:
                super().parse_args(line, list(words))
            except click.UsageError as error:
                raise click.UsageError(f"{script.path}:{number}: {error.format_message()}", ctx) from None
            if line.params["words"]:
                raise click.UsageError(f"{script.path}:{number}: {line.params['words'][0]!r} is not an option", ctx)
        return ["--name", script.path.name, *(word for _, words in script.lines for word in words)]


@click.command(
    "submit", cls=Submit, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@with_submission_options
@click.option(
    "--estimate",
    "estimator",
    type=click.Choice(AT_SUBMISSION),
    help="Estimate the memory first, as `carpool estimate` does; the script's set-up code runs now, on this machine.",
)
@with_common_options
@click.pass_context
def command(
    context: click.Context,
    /,
    home: Path,
    as_json: bool,
    words: tuple[str, ...],
    estimator: str | None,
    asked: dict[str, Any],
) -> int:
    """Submit a job, or the jobs of a file, and print the ids.  An array or a grid has one id.

    The job runs in this directory, with this environment and the active virtual environment, and not through a shell.
    A script.py without an interpreter runs with the virtual environment's python, else with the PATH's.  A single word
    that ends in .toml is a job file (see the guide); either all jobs of a submission are accepted or none.  A script's
    lines "#CARPOOL --gpus 1" at its beginning are options, too; lines "#SBATCH" are understood where they mean the
    same.  Starts the daemon if none is running.  Examples:

    \b
        carpool submit -- python train.py --lr 0.1
        carpool submit --iterations 2000 --mem 300MiB/1GiB train.py
        carpool submit --param lr=1e-3,1e-4 -- python train.py --lr {lr}
        carpool submit --shell "python prepare.py && python train.py | tee out"
        carpool submit jobs.toml
        carpool submit job.sh
    """
    array, grid = asked.pop("array"), _grid(asked.pop("param"))
    _check_both(array is not None and bool(grid), "array_and_grid", "--array and --param both make several jobs")
    given_twice = estimator is not None and asked["memory"] is not None
    _check_both(given_twice, "two_estimates", "--mem and --estimate both set the memory estimate")
    asked["after"] = awaited_jobs(home, asked["after"])
    request = _many(context, words, grid, array, asked)
    if request is None:
        return _submit_one(home, as_json, words, estimator, asked)
    if estimator is not None:
        from carpool.cli.request.estimator_process import estimated_many

        request = estimated_many(request, estimator, home)
    with connected(home) as client:
        jobs = client.submit_many(request)
    further = {jobs[place] for group in request.arrays for place in group[1:]}
    return answer(as_json, SubmitManyResponse(jobs), lambda: (str(job) for job in jobs if job not in further))


def _check_both(both: bool, code: str, text: str) -> None:
    """Raise Problem if two options are given of which only one may be."""
    if both:
        raise Problem(Exit.USAGE, code, text, "give one of them")


def _submit_one(home: Path, as_json: bool, words: tuple[str, ...], estimator: str | None, asked: dict[str, Any]) -> int:
    request = submission(words, asked)
    if estimator is not None:
        from carpool.cli.request.estimator_process import estimated

        (request,) = estimated([request], estimator, home)
    with connected(home) as client:
        job = client.submit(request)
    return answer(as_json, SubmitResponse(job), lambda: [str(job)])


def _grid(parameters: Sequence[tuple[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    grid = dict(parameters)
    if len(grid) < len(parameters):
        hint = "give one --param with all its values"
        raise Problem(Exit.USAGE, "parameter_twice", "a parameter is given twice", hint)
    return grid


def _many(
    context: click.Context,
    words: tuple[str, ...],
    grid: dict[str, tuple[str, ...]],
    array: ArrayRange | None,
    asked: dict[str, Any],
) -> SubmitManyRequest | None:
    """Return the request for a job file, a grid or an array; None for a single job on the command line."""
    if words and words[0].endswith(".toml") and not context.meta[_LITERAL]:
        return _of_file(context, words, grid, array, asked)
    if not grid and array is None:
        return None
    from carpool.cli.request import batch  # what most submissions do not need

    return batch.from_command(grid, words, asked) if array is None else batch.from_array(array, words, asked)


def _of_file(
    context: click.Context,
    words: tuple[str, ...],
    grid: dict[str, tuple[str, ...]],
    array: ArrayRange | None,
    asked: dict[str, Any],
) -> SubmitManyRequest:
    from carpool.cli.request import batch, job_file

    if array is not None:
        raise Problem(Exit.USAGE, "array_of_file", f"--array is for one command, not for the job file {words[0]}")
    if len(words) > 1:
        text = f"there are words after the job file {words[0]}; options come before it"
        hint = f"to run a program of that name: carpool submit -- ./{words[0]}"
        raise Problem(Exit.USAGE, "words_after_file", text, hint)
    default = click.core.ParameterSource.DEFAULT
    chosen = {name: value for name, value in asked.items() if context.get_parameter_source(name) is not default}
    return batch.from_file(job_file.read_job_file(Path(words[0])), grid, chosen)
