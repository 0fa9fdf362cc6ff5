"""How many examples a property test looks at: all of them in `make test-all`, fewer in the tiers before."""

from hypothesis import settings

#: Hypothesis's profile of `make test-all`, and of tests that are run without a tier; and the one of all others.
ALL, FEWER = "carpool-all", "carpool-fewer"


def examples(count: int, *, fewer: int) -> int:
    """``count`` in `make test-all`, else ``fewer``: for ``max_examples``, when a module of tests is imported."""
    return count if settings.get_current_profile_name() == ALL else fewer
