"""``carpool estimate``: how much memory will a job need?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import POSITIVE, TIME_US, Parsed, answer, with_common_options
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import stdout_output
from carpool.cli.request.command_line import resolve_command
from carpool.cli.request.estimator_process import DEFAULT_LIMIT_S, ask, earlier_runs, interpreter
from carpool.cli.request.job_options import job_directory
from carpool.protocol.display import escaped
from carpool.protocol.estimates import NAMES, Answer, Answers, Question, Subject
from carpool.protocol.units import format_size

MICROS = 1_000_000
COLUMNS = (*map(TableColumn, ("ESTIMATOR", "P", "E", "TOTAL", "RANGE")), TableColumn("HOW", prose=True))


def _shape(text: str) -> list[int]:
    """Parse the shape of one example, as in ``3x224x224``.  Raises ValueError, for people."""
    try:
        shape = [int(part) for part in text.lower().split("x")]
    except ValueError:
        raise ValueError(f"{text!r} is not a shape: write whole numbers with x between them, as in 3x224x224") from None
    if min(shape) < 1:
        raise ValueError(f"{text!r} is not a shape: every number must be 1 or more")
    return shape


@click.command("estimate", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND [ARGS]...]")
@click.option("--model", metavar="MODULE:FUNCTION", help="Function that builds the model, as in nets.py:resnet50.")
@click.option("--batch-size", type=POSITIVE, help="Examples per iteration; with --model.")
@click.option(
    "--input",
    "input_shapes",
    multiple=True,
    type=Parsed("shape", _shape),
    help="Shape of an input of one example, as in 3x224x224; repeatable.",
)
@click.option(
    "--optimizer",
    metavar="NAME",
    default="adam",
    show_default=True,
    help="Optimizer with its arguments, as in sgd,momentum=0.9; with --model.",
)
@click.option(
    "--loss",
    type=click.Choice(["auto", "cross_entropy", "mse", "mean"]),
    default="auto",
    show_default=True,
    help="Loss function; with --model.",
)
@click.option(
    "--estimator",
    "names",
    multiple=True,
    type=click.Choice(NAMES),
    help="Run only this estimator; repeatable.  [default: all]",
)
@click.option(
    "--device",
    type=click.Choice(["host", "cuda"]),
    default="host",
    show_default=True,
    help="Kind of device that the job will run on.",
)
@click.option("--time-limit", "limit_us", type=TIME_US, help="Time limit for all estimators together.  [default: 60s]")
@click.option("--chdir", "-D", "directory", metavar="DIR", help="Working directory.  [default: the current one]")
@with_common_options
def command(home: Path, as_json: bool, words: Sequence[str], model: str | None, **options: Any) -> int:
    """Estimate a job's memory without running it.

    The script runs up to its first optimizer steps, over tensors that have shapes but no data: nothing is trained.  A
    script whose set-up depends on computed values cannot be followed; describe its model with --model instead.  P:
    persistent memory (parameters, optimizer state).  E: ephemeral memory (such as activations).  Examples:

    \b
        carpool estimate -- python train.py --batch-size 64
        carpool estimate --model nets.py:resnet50 --batch-size 32 \\
            --input 3x224x224 --optimizer sgd,momentum=0.9
    """
    if bool(words) == bool(model):
        raise Problem(
            Exit.USAGE, "what_to_estimate", "give either a command or --model", "see `carpool estimate --help`"
        )
    answers = _answers(home, words, model=model or "", **options)
    code = Exit.OK if any(each.prediction for each in answers) else Exit.REFUSED
    return answer(as_json, Answers(answers), lambda: stdout_output().table(COLUMNS, rows(answers)), code)


def _answers(
    home: Path, words: Sequence[str], *, names: Sequence[str], limit_us: int | None, directory: str | None, **model: Any
) -> list[Answer]:
    """``model``: further fields of `Subject`."""
    where = job_directory(directory)
    argv = resolve_command(words, where, os.environ) if words else []
    runs = earlier_runs(home, argv, str(where)) if argv else []
    subject = Subject(argv, str(where), history=runs, **model)
    limit_s = limit_us / MICROS if limit_us else DEFAULT_LIMIT_S
    return ask(Question(subject, list(names or NAMES), limit_s), interpreter(argv, os.environ), where, os.environ)


def rows(answers: Sequence[Answer]) -> list[tuple[str, ...]]:
    """Return a row of the table for each answer, in order; the last column says why there is no estimate."""
    return [_row(answer) for answer in answers]


def _row(answer: Answer) -> tuple[str, ...]:
    found = answer.prediction
    if found is None:
        error = answer.error
        why = "" if error is None else f"{error.message}; {error.hint}" if error.hint else error.message
        return (answer.estimator, "-", "-", "-", "-", escaped(why))
    spread = f"{format_size(found.low)} to {format_size(found.high)}"
    figures = (format_size(found.persistent), format_size(found.ephemeral), format_size(found.total))
    return (answer.estimator, *figures, spread, escaped(found.how))
