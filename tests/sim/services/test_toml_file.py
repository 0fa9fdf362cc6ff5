"""What is served, read from TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.core.model import MIB
from carpool.sim.model.served_engines import EngineRequest, ServedEngine
from carpool.sim.model.served_models import ServedModel, Services
from carpool.sim.services.toml_file import read_services
from carpool.sim.traces.files import TraceError

ALL = """
seconds = 10
seed = 3
workers = 2
activations_mib = 200.5
owner = 1000
group_mib = 8
transfer_ms = 0.05

[[model]]
name = "bert"
weights_mib = 417.6
compute_ms = 12.5
further_ms = 4
deadline_ms = 100
rate = 20.5
max_batch = 8
max_delay_ms = 3
max_queue = 50
priority = 1

[[model]]
name = "few"
weights_mib = 0
compute_ms = 0.0001
arrivals_s = [2, 0.1, 1.0000005]
"""


def read(tmp_path: Path, text: str) -> Services:
    path = tmp_path / "services.toml"
    path.write_text(text, encoding="utf-8")
    return read_services(path)


def test_every_key(tmp_path: Path) -> None:
    services = read(tmp_path, ALL)
    bert, few = services.models
    assert services == Services((bert, few), 2, round(200.5 * MIB), 1000, 8 * MIB, 50)
    assert 150 < len(bert.arrivals_us) < 260
    assert 0 < bert.arrivals_us[0] < bert.arrivals_us[-1] < 10_000_000
    limits = {"deadline_us": 100_000, "max_batch": 8, "max_delay_us": 3000, "max_queue": 50, "priority": 1}
    assert bert == ServedModel("bert", 437_885_338, 12_500, bert.arrivals_us, 4000, **limits)
    assert few == ServedModel("few", 0, 1, (100_000, 1_000_001, 2_000_000))


def test_the_seed_decides_and_models_differ(tmp_path: Path) -> None:
    twice = ALL.replace(
        "[[model]]", '[[model]]\nname = "b"\nweights_mib = 1\ncompute_ms = 1\nrate = 20.5\n[[model]]', 1
    )
    first, again, other = (read(tmp_path, text) for text in (twice, twice, twice.replace("seed = 3", "seed = 4")))
    assert first == again
    assert first.models[0].arrivals_us != first.models[1].arrivals_us
    assert first.models[0].arrivals_us != other.models[0].arrivals_us


MODEL = '[[model]]\nname = "m"\nweights_mib = 1\ncompute_ms = 1\narrivals_s = [1]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers = ", "this is not TOML: "),
        ("workers = " + "9" * 5000, "this is not TOML: "),
        ("workers = " + "[" * 5000, "this is not TOML: "),
        ("workers = 1", r"there are no models or engines; write a \[\[model\]\] or an"),
        ("model = 3", "model is no list of tables"),
        ("wokers = 1\n" + MODEL, 'unknown key "wokers"; did you mean workers'),
        ("colour = 1\n" + MODEL, 'unknown key "colour"; use workers, '),
        ("workers = 0\n" + MODEL, 'workers is "0"; it must be a whole number of at least 1'),
        ("workers = true\n" + MODEL, 'workers is "True"'),
        ('workers = "2"\n' + MODEL, 'workers is "2"; it must be'),
        ("workers = 1.5\n" + MODEL, r'workers is "1.5" \(not a whole number\)'),
        ("owner = -1\n" + MODEL, 'owner is "-1"'),
        ("group_mib = 0\n" + MODEL, 'group_mib is "0"; it must be a number of MiB greater than 0'),
        (
            MODEL + "deadline_ms = 0",
            'model 1: deadline_ms is "0" .no time at all.; it must be a number of milliseconds greater than 0',
        ),
        (MODEL + MODEL, 'two models have the name "m"'),
        (MODEL.replace('"m"', '""'), "name is "),
        (MODEL.replace("weights_mib = 1\n", ""), "model 1: weights_mib is missing"),
        (MODEL.replace("[1]", "1"), "arrivals_s is "),
        (MODEL.replace("[1]", '["1"]'), "arrivals_s is "),
        (MODEL + "rate = 1", "model 1: say either rate or arrivals_s"),
        (MODEL.replace("arrivals_s = [1]", ""), "say either rate or arrivals_s"),
        (MODEL.replace("arrivals_s = [1]", "rate = 1"), 'rate needs "seconds" at the top'),
        (MODEL.replace("arrivals_s = [1]", "rate = 0"), 'rate is "0"; it must be requests per second, greater than 0'),
        ("seconds = 1e9\n" + MODEL.replace("arrivals_s = [1]", "rate = 1"), "more than 10,000,000 requests"),
        (MODEL + "[model2]", 'unknown key "model2"'),
    ],
)
def test_the_first_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(tmp_path, text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="it cannot be read"):
        read_services(tmp_path / "none.toml")


ENGINE = """[[engine]]
name = "e"
weights_mib = 1
prompt_token_ms = 0.5
token_ms = 8
"""
ALIKE = "prompt_tokens = 10\ntokens = 3\narrivals_s = [2, 1]\n"


def test_engines(tmp_path: Path) -> None:
    more = "cache_mib = 2\nfurther_ms = 1\nstart_s = 3\nttl_s = 4\npreload = true\nmax_in_flight = 5\npriority = 6\n"
    (found,) = read(tmp_path, "owner = 7\n" + ENGINE + more + ALIKE).engines
    asked = EngineRequest(1_000_000, 5000, 3), EngineRequest(2_000_000, 5000, 3)
    sizes, times = {"weights": MIB, "cache": 2 * MIB}, {"token_us": 8000, "further_us": 1000, "start_us": 3_000_000}
    rest = {"ttl_us": 4_000_000, "begin_us": 0, "most": 5, "priority": 6, "owner": 7}
    assert found == ServedEngine("e", asked, **sizes, **times, **rest)
    (each,) = read(tmp_path, ENGINE + "requests = [[2, 1, 4], [0.5, 20, 1]]").engines
    assert each.requests == (EngineRequest(500_000, 10_000, 1), EngineRequest(2_000_000, 500, 4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENGINE, "engine 1: say prompt_tokens and tokens, or the requests one by one"),
        (ENGINE + ALIKE + "requests = [[1, 1, 1]]", "requests says it all; remove "),
        (ENGINE + "requests = [[1, 1]]", r"it must be a list of \[second, prompt tokens, tokens\]"),
        (ENGINE + ALIKE + "preload = 1", "preload is .*; it must be true or false"),
        (ENGINE.replace("token_ms = 8\n", "") + ALIKE, "engine 1: token_ms is missing"),
        (ENGINE + ALIKE + ENGINE + ALIKE, 'two engines have the name "e"'),
    ],
)
def test_engines_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(tmp_path, text)
