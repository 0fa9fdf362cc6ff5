"""Changing settings by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.core.model import Settings
from carpool.core.policies import POLICIES
from carpool.daemon.config import settings
from carpool.daemon.config.settings import changed_settings


@pytest.mark.parametrize("sorts", [(True, False), (False, True)], ids=["policy", "placement"])
def test_a_policy_whose_import_never_ends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sorts: tuple[bool, bool]
) -> None:
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    name = f"{tmp_path / 'endless.py'}:Endless"
    policy, placement = [name if named else None for named in sorts]
    monkeypatch.setattr(settings, "LOAD_LIMIT_S", 0.1)
    with pytest.raises(ValueError, match=r"Endless' cannot be loaded: that took longer than 0\.1 s"):
        changed_settings(Settings(), policy, {}, placement)
    assert not POLICIES.is_registered(name)
