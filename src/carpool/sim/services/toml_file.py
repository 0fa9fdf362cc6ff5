"""Reads the description of services from TOML: keys for all, and a ``[[model]]`` or an ``[[engine]]`` for each.

Numbers are converted exactly, as in traces: 0.1 never becomes a binary fraction.  docs/simulator.md lists the keys.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carpool.core.model import Micros
from carpool.sim.model.served_engines import EngineRequest, ServedEngine
from carpool.sim.model.served_models import ServedModel, Services, poisson_us
from carpool.sim.services.toml_keys import (
    ExactNumber,
    ServiceKey,
    Table,
    flag,
    model_name,
    rate,
    requests,
    some_mib,
    times,
    values_of,
)
from carpool.sim.traces.columns import milliseconds, positive, seconds, some_milliseconds, some_seconds
from carpool.sim.traces.files import TraceError, open_text, quoted, readable
from carpool.sim.traces.numbers import mebibytes, whole

MODEL, ENGINE = "model", "engine"
#: More requests are considered a mistake: a simulated request costs some 0.1 ms.
MOST_REQUESTS = 10_000_000
#: Seeds of engines count from here, so that an engine and a model of one number differ.
SEEDS = 500_000

_MS, _SOME_MS = "a number of milliseconds, 0 or more", "a number of milliseconds greater than 0"
_COUNT, _WHOLE = "a whole number of at least 1", "a whole number, 0 or more"
_MIB = "a number of MiB, 0 or more"

COMMON = {
    "workers": ServiceKey("workers", positive, _COUNT),
    "activations_mib": ServiceKey("activations", mebibytes, _MIB),
    "owner": ServiceKey("owner", whole, _WHOLE),
    "group_mib": ServiceKey("group", some_mib, "a number of MiB greater than 0"),
    "transfer_ms": ServiceKey("transfer_us", milliseconds, _MS),
}
POISSON = {
    "seconds": ServiceKey("seconds", some_seconds, "a number of seconds greater than 0"),
    "seed": ServiceKey("seed", whole, _WHOLE),
}
OF_MODEL = {
    "name": ServiceKey("name", model_name, "a name", is_number=False),
    "weights_mib": ServiceKey("weights", mebibytes, _MIB),
    "compute_ms": ServiceKey("compute_us", some_milliseconds, _SOME_MS),
    "further_ms": ServiceKey("further_us", milliseconds, _MS),
    "deadline_ms": ServiceKey("deadline_us", some_milliseconds, _SOME_MS),
    "max_batch": ServiceKey("max_batch", positive, _COUNT),
    "max_delay_ms": ServiceKey("max_delay_us", milliseconds, _MS),
    "max_queue": ServiceKey("max_queue", positive, _COUNT),
    "priority": ServiceKey("priority", whole, _WHOLE),
}
ARRIVALS = {
    "rate": ServiceKey("rate", rate, "requests per second, greater than 0"),
    "arrivals_s": ServiceKey("arrivals_us", times, "a list of numbers of seconds", is_number=False),
}
REQUIRED = ("name", "weights_mib", "compute_ms")
OF_ENGINE = {
    "name": OF_MODEL["name"],
    "weights_mib": OF_MODEL["weights_mib"],
    "cache_mib": ServiceKey("cache", mebibytes, _MIB),
    "prompt_token_ms": ServiceKey("prompt_token_us", some_milliseconds, _SOME_MS),
    "token_ms": ServiceKey("token_us", some_milliseconds, _SOME_MS),
    "further_ms": OF_MODEL["further_ms"],
    "start_s": ServiceKey("start_us", seconds, "a number of seconds, 0 or more"),
    "ttl_s": ServiceKey("ttl_us", some_seconds, "a number of seconds greater than 0"),
    "preload": ServiceKey("preload", flag, "true or false", is_number=False),
    "max_in_flight": ServiceKey("most", positive, _COUNT),
    "priority": ServiceKey("priority", positive, _COUNT),
}
TOKENS = {
    "prompt_tokens": ServiceKey("prompt_tokens", positive, _COUNT),
    "tokens": ServiceKey("tokens", positive, _COUNT),
}
REQUESTS = {
    "requests": ServiceKey("requests", requests, "a list of [second, prompt tokens, tokens]", is_number=False),
}
REQUIRED_OF_ENGINE = ("name", "weights_mib", "prompt_token_ms", "token_ms")


def read_services(path: Path) -> Services:
    """Read a description.  Raises TraceError for the first error in the file."""
    with readable(path), open_text(path) as file:
        text = file.read()
    try:
        table = tomllib.loads(text, parse_float=ExactNumber)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, endlessly nested tables
        raise TraceError.at(path, "", f"this is not TOML: {error}") from None
    models, engines = (_tables(path, kind, table.pop(kind, [])) for kind in (MODEL, ENGINE))
    if not models and not engines:
        raise TraceError.at(path, "", "there are no models or engines; write a [[model]] or an [[engine]] for each")
    values = values_of(path, "", table, COMMON | POISSON)
    poisson = values.pop("seconds", None), values.pop("seed", 0)
    made = [_model(path, number, each, *poisson) for number, each in enumerate(models, 1)]
    owner = values.get("owner", 0)
    served = [_engine(path, number, each, *poisson, owner) for number, each in enumerate(engines, 1)]
    _check(path, MODEL, [(model.name, len(model.arrivals_us)) for model in made])
    _check(path, ENGINE, [(engine.name, len(engine.requests)) for engine in served])
    return Services(tuple(made), engines=tuple(served), **values)


def _tables(path: Path, kind: str, found: Any) -> list[Table]:
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise TraceError.at(path, "", f"{kind} is no list of tables; write a [[{kind}]] for each")
    return found


def _check(path: Path, kind: str, made: Sequence[tuple[str, int]]) -> None:
    """Check names and numbers of requests."""
    for name, count in Counter(name for name, _ in made).most_common(1):
        if count > 1:
            raise TraceError.at(path, "", f"two {kind}s have the name {quoted(name)}; give each its own")
    if sum(count for _, count in made) > MOST_REQUESTS:
        raise TraceError.at(path, "", f"these are more than {MOST_REQUESTS:,} requests; lower the rates or the seconds")


def _model(path: Path, number: int, table: Table, until_us: Micros | None, seed: int) -> ServedModel:
    place = f"{MODEL} {number}"
    values = values_of(path, place, table, OF_MODEL | ARRIVALS)
    _require(path, place, table, REQUIRED)
    arrivals = _arrivals(path, place, values, until_us, seed * 1_000_003 + number)
    return ServedModel(**values, arrivals_us=arrivals)


def _engine(path: Path, number: int, table: Table, until_us: Micros | None, seed: int, owner: int) -> ServedEngine:
    place = f"{ENGINE} {number}"
    values = values_of(path, place, table, OF_ENGINE | TOKENS | ARRIVALS | REQUESTS)
    _require(path, place, table, REQUIRED_OF_ENGINE)
    prompt_token_us, preload = values.pop("prompt_token_us"), values.pop("preload", False)
    rows = values.pop("requests", None)
    if rows is None:
        rows = _alike(path, place, values, until_us, seed * 1_000_003 + SEEDS + number)
    elif not table.keys().isdisjoint(TOKENS | ARRIVALS):
        raise TraceError.at(path, place, f"requests says it all; remove {', '.join(TOKENS | ARRIVALS)}")
    asked = tuple(EngineRequest(at_us, prompt * prompt_token_us, tokens) for at_us, prompt, tokens in rows)
    return ServedEngine(**values, requests=asked, begin_us=0 if preload else None, owner=owner)


def _alike(
    path: Path, place: str, values: dict[str, Any], until_us: Micros | None, seed: int
) -> list[tuple[Micros, int, int]]:
    """Return requests that are alike but for their arrivals."""
    prompt, tokens = (values.pop(name, None) for name in TOKENS)
    if prompt is None or tokens is None:
        raise TraceError.at(path, place, f"say {' and '.join(TOKENS)}, or the requests one by one")
    return [(when, prompt, tokens) for when in _arrivals(path, place, values, until_us, seed)]


def _require(path: Path, place: str, table: Table, keys: Sequence[str]) -> None:
    missing = [name for name in keys if name not in table]
    if missing:
        raise TraceError.at(path, place, f"{', '.join(missing)} is missing")


def _arrivals(path: Path, place: str, values: dict[str, Any], until_us: Micros | None, seed: int) -> tuple[Micros, ...]:
    """Take the arrivals out of the values of a table."""
    per_second, arrivals = values.pop("rate", None), values.pop("arrivals_us", None)
    if (per_second is None) == (arrivals is None):
        raise TraceError.at(path, place, "say either rate or arrivals_s")
    if per_second is None:
        assert arrivals is not None
        return tuple(arrivals)
    if until_us is None:
        raise TraceError.at(path, place, 'rate needs "seconds" at the top: for so long requests arrive')
    if per_second * until_us > MOST_REQUESTS * 1_000_000:
        raise TraceError.at(path, place, f"these are more than {MOST_REQUESTS:,} requests; lower rate or seconds")
    return poisson_us(per_second, until_us, seed)
