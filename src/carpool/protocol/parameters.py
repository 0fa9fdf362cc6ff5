"""Values of a grid's parameters, as a job finds them in its environment."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "CARPOOL_PARAM_"


def parameter_variables(values: Mapping[str, str]) -> dict[str, str]:
    """A variable for each parameter.

    >>> parameter_variables({"lr": "0.1"})
    {'CARPOOL_PARAM_LR': '0.1'}
    """
    return {PREFIX + name.upper(): value for name, value in values.items()}
