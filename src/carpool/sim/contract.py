"""The policy check under its name of version 0.1; new tests import `carpool.policy_check`."""

from __future__ import annotations

from carpool.policy_check import ContractViolation, check_policy

__all__ = ["ContractViolation", "check_policy"]
