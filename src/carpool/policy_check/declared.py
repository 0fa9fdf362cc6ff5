"""What a policy declares about itself, and whether the core accepts its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from carpool.core.model import Settings
from carpool.core.policies import Policy
from carpool.core.state.settings_check import check_settings
from carpool.policy_check.outcome import ContractViolation, require

#: Every setting must accept at least one of these values.
VALUES = (1, 1_000, 1_000_000, 1_000_000_000, 0)
UNKNOWN_SETTING = "a_setting_of_no_policy"


def check_declaration(kind: type[Policy]) -> None:
    """Check the attributes of a policy class: name, flags, quantum, names of settings.  Raises ContractViolation."""
    policy = kind()
    require(isinstance(policy.name, str) and bool(policy.name), f"name is {policy.name!r}; it must be a text")
    for part in ("backfill", "by_user", "preemptive", "requeue"):
        value = getattr(policy, part)
        require(isinstance(value, bool), f"{part} is {value!r}; it must be True or False")
    quantum = policy.quantum_us
    require(type(quantum) is int and quantum >= 0, f"quantum_us is {quantum!r}; it must be an integer from 0 on")
    names = policy.settings
    proper = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
    require(proper, f"settings is {names!r}; it must be a tuple of names")
    taken = sorted({part.name for part in fields(Settings)} & set(names))
    require(not taken, f"settings of its own have the names of the core's: {', '.join(taken)}")


def accepted_settings(name: str, kind: type[Policy]) -> Iterator[dict[str, int]]:
    """Yield each setting of the policy with a value that it accepts.

    Raises ContractViolation if the policy refuses its defaults or every value of a setting, or accepts an unknown
    setting.
    """
    require(_refusal(name, {}) is None, f"it refuses its own defaults: {_refusal(name, {})}")
    for setting in kind().settings:
        refusals = {value: _refusal(name, {setting: value}) for value in VALUES}
        fitting = [value for value, refusal in refusals.items() if refusal is None]
        require(bool(fitting), f"it names the setting {setting}, and refuses every value of it: {refusals}")
        yield {setting: fitting[0]}
    require(_refusal(name, {UNKNOWN_SETTING: 1}) is not None, "it takes a setting that it does not name")


def _refusal(name: str, extra: dict[str, int]) -> str | None:
    """Return why the core refuses the settings ``extra``; None if it accepts them.  Raises ContractViolation."""
    try:
        check_settings(Settings(policy=name, extra=extra))
    except ValueError as error:
        return str(error)
    except Exception as error:
        raise ContractViolation(
            f"check raised {error!r} about the settings {extra}; it may raise ValueError"
        ) from error
    return None
