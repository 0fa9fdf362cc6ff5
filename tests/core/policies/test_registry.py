"""What both sorts of policies share: how they are found by name, and what is none."""

from __future__ import annotations

import pytest

from carpool.core.policies.registry import Registry


class Base:
    name = "base"
    settings: tuple[str, ...] = ()


class Own(Base):
    name = "own"


class Theirs(Base):
    name = "theirs"


class Edited(Base):
    name = "edited"


class Counted(Base):
    settings = (1, 2)  # type: ignore[assignment]


class Guard(Base):
    def __init__(self, policy: Base) -> None:
        self.name = f"guarded {policy.name}"


@pytest.fixture
def registry() -> Registry[Base]:
    return Registry(("rule", "rules", "known rules"), (Own,), Base, Guard)


def test_those_of_others_are_guarded_unless_their_errors_are_wanted(registry: Registry[Base]) -> None:
    registry.register("a", Theirs)
    registry.register("b", Theirs, guarded=False)
    assert [registry.load(name).name for name in ("own", "a", "b")] == ["own", "guarded theirs", "theirs"]
    assert (registry.kind("own"), registry.kind("a")) == (Own, Theirs)
    assert registry.is_registered("a") and not registry.is_registered("own")
    registry.register("b", Edited)
    assert registry.load("b").name == "guarded edited"


def test_a_name_that_nobody_knows(registry: Registry[Base]) -> None:
    registry.register("a", Theirs)
    with pytest.raises(ValueError, match=r"^unknown rule 'b'; known rules: own, a; or one of yours, as path.py:Class$"):
        registry.load("b")
    with pytest.raises(KeyError):
        registry.kind("b")


def test_settings_that_are_no_names(registry: Registry[Base]) -> None:
    with pytest.raises(ValueError, match=r"^'a' is not a rule: its settings are \(1, 2\), not a tuple of names$"):
        registry.register("a", Counted)


def test_an_error_leaves_what_was_there(registry: Registry[Base]) -> None:
    registry.register("a", Theirs, guarded=False)
    with pytest.raises(RuntimeError, match="not today"), registry.kept_on_error():
        registry.register("a", Edited)
        registry.register("b", Edited)
        raise RuntimeError("not today")
    assert registry.load("a").name == "theirs" and not registry.is_registered("b")
