"""Presets of `carpool up --preset`: one published system each, as a policy and settings of the core."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Preset:
    about: str
    policy: str
    settings: dict[str, int] = field(default_factory=dict)


PRESETS: dict[str, Preset] = {
    "salus": Preset(
        about="Salus: iteration scheduling; a turn may change hands after every iteration, whatever a switch costs",
        policy="fair",
        settings={"quantum_us": 0, "max_switch_share_ppm": 1_000_000},
    ),
    "nvshare": Preset(
        about="nvshare: turns of 30 s, first come first served, whatever moving memory costs; "
        "memory moves only where it does not fit",
        policy="tq",
        settings={"max_switch_share_ppm": 1_000_000, "max_move_share_ppm": 1_000_000},
    ),
}


def preset(name: str) -> str:
    """Checks a preset's name.  Raises ValueError, which names the known ones."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: known are {', '.join(sorted(PRESETS))}")
    return name
