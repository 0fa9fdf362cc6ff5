"""Presets of `carpool up --preset`: one published system each, as a policy and settings of the core."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.spelling import did_you_mean


@dataclass(frozen=True, slots=True)
class Preset:
    """A published system: a sentence about it, its policies, and its settings of the core."""

    about: str
    policy: str
    settings: dict[str, int] = field(default_factory=dict)
    placement: str = "magm"


PRESETS: dict[str, Preset] = {
    "carma": Preset(
        about="CARMA: jobs side by side where memory, load and risk allow it; one newcomer per device at a time; "
        "memory that is not free is an error, as without Carpool",
        policy="pack",
        settings={
            "placement_strict": 1,
            "refuse_growth": 1,
            "warm_limit": 1,
            "warm_window_us": 30_000_000,
            "warm_timeout_us": 60_000_000,
        },
    ),
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
    """Return a preset's name if it is known.  Raises ValueError, which names the known presets."""
    if name not in PRESETS:
        raise ValueError(
            f"unknown preset {name!r}: {did_you_mean(name, PRESETS)}known are {', '.join(sorted(PRESETS))}"
        )
    return name
