"""The request that registers a model, checked as far as possible without loading anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.request.command_line import python_for
from carpool.cli.request.job_options import captured_environment, checked_text, job_directory
from carpool.protocol.models import ModelRequest, check_weights
from carpool.protocol.paths import expanded


def registration(
    factory: str,
    weights: str | None,
    deadline_us: int | None,
    max_batch: int,
    max_delay_us: int,
    priority: int,
    directory: str | None,
) -> ModelRequest:
    """Make the request.  ``weights`` is relative to the current directory.  Raises Problem."""
    env, where = captured_environment(os.environ), job_directory(directory)
    return ModelRequest(
        factory=factory,
        python=checked_text(str(Path(python_for(env)).absolute()), "the interpreter's path"),
        cwd=checked_text(str(where), "the directory"),
        env=env,
        weights=None if weights is None else checked_text(str(weights_file(weights)), "the file of weights"),
        deadline_us=deadline_us,
        max_batch=max_batch,
        max_delay_us=max_delay_us,
        priority=priority,
    )


def weights_file(text: str) -> Path:
    """Return a readable file's whole path; links stay, since their targets often have other names.  Raises Problem."""
    try:
        path = expanded(check_weights(text)).absolute()
        mode = path.stat().st_mode
    except ValueError as error:
        raise Problem(Exit.USAGE, "bad_weights", f"--weights: {error}") from None
    except FileNotFoundError:
        raise Problem(Exit.NOT_FOUND, "missing_weights", f"there is no file {text}", "check --weights") from None
    except OSError as error:
        raise Problem(Exit.REFUSED, "unreadable_weights", f"{text} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise Problem(
            Exit.USAGE, "bad_weights", f"{text} is not a regular file", "give the safetensors file, or its index"
        )
    if not os.access(path, os.R_OK):
        raise Problem(Exit.REFUSED, "unreadable_weights", f"you may not read {text}", f"chmod u+r {text}")
    return path
