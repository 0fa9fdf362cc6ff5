"""The list of filters: what it says of each is so."""

from __future__ import annotations

from carpool.core.model import NUMBER_SETTINGS
from carpool.core.placement.filters import FILTERS


def test_each_filter_has_a_rule_and_settings_that_exist() -> None:
    for each in FILTERS:
        assert each.codes and each.waits and (each.device or each.job)
        assert set(each.settings) <= set(NUMBER_SETTINGS)
