"""What others write to the daemon, the endpoint and the simulator: no bytes break what reads them.

The C library has targets of its own: ``src/native/fuzz``, run by ``src/native/run_fuzz.py``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import sessions
from tests.fuzz.targets import TARGETS, endpoint

EXAMPLES = 500
MOST_CORPUS_BYTES = 200 << 10


@pytest.fixture(autouse=True, scope="module")
def _no_endpoint_left() -> Iterator[None]:
    yield
    endpoint.stop()


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_no_input_of_the_corpus_breaks_its_target(target: str) -> None:
    """Among them all that ever did."""
    found = sessions.inputs(target)
    assert found
    for path in found:
        try:
            sessions.replay(target, path.read_bytes())
        except Exception as error:
            error.add_note(str(path))
            raise


@pytest.mark.nightly(
    "looks for new inputs, hundreds of each target; `make fuzz` looks for minutes",
    stays="test_no_input_of_the_corpus_breaks_its_target",
)
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_no_changed_input_breaks_its_target(target: str, moments: random.Random) -> None:
    sessions.session(target, moments.randrange(1 << 32), EXAMPLES)


def test_every_corpus_has_its_target_and_all_of_them_are_small() -> None:
    assert sorted(path.name for path in sessions.CORPUS.iterdir()) == sorted(TARGETS)
    assert sum(path.stat().st_size for path in sessions.CORPUS.rglob("*") if path.is_file()) < MOST_CORPUS_BYTES


def test_a_target_that_raises_is_found_with_its_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reader that fails at one byte, which the corpus does not have."""

    def check(data: bytes) -> None:
        assert not data.startswith(b"[")

    (tmp_path / "packet").mkdir()
    (tmp_path / "packet" / "empty").write_bytes(b"")
    monkeypatch.setattr(sessions, "CORPUS", tmp_path)
    monkeypatch.setitem(TARGETS, "packet", TARGETS["packet"]._replace(check=check))
    with pytest.raises(AssertionError) as failure:
        sessions.session("packet", 1, 200)
    assert any(note.startswith("packet: the input is b'[") for note in failure.value.__notes__)
