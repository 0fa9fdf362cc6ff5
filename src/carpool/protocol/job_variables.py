"""Variables that Carpool sets for jobs and that the client and the daemon use.  Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "CARPOOL_PARAM_"
#: The directory of the Python function that a job runs (`carpool.tasks`).
TASK = "CARPOOL_TASK"


def parameter_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return a variable for each parameter.

    >>> parameter_variables({"lr": "0.1"})
    {'CARPOOL_PARAM_LR': '0.1'}
    """
    return {PREFIX + name.upper(): value for name, value in values.items()}
