"""The ledger: what was written is there for the next daemon, and what a seat or a shim says instead is not believed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.core.model import MIB, Memory, MemoryClass
from carpool.daemon.jobs.seat_table import BoardError
from carpool.daemon.seats import ledger as module
from carpool.daemon.seats.kept_fds import extent_names, kept_extents, memory_name
from carpool.daemon.seats.ledger import Entry, GrantLedger, file_of
from carpool.devices.base import DeviceError, Extent
from tests.daemon.daemon_harness import Make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def files() -> Iterator[list[int]]:
    made = [os.memfd_create(f"file{number}") for number in range(3)]
    yield made
    for fd in made:
        os.close(fd)


def filled(path: Path, files: list[int]) -> GrantLedger:
    ledger = GrantLedger(path)
    ledger.move(7, 3)
    ledger.give_bank(7, 5)
    ledger.limit(7, Memory(2 * MIB, MIB))
    ledger.keep(7, {"board:host0:1": files[0], "lane:3": files[1], "bank:host0:5": files[2]})
    return ledger


def test_the_next_daemon_finds_what_was_written(path: Path, files: list[int]) -> None:
    ledger = filled(path, files)
    ledger.drop(7, ["bank:host0:5"])
    ledger.move_out(7, 3 * MIB)
    again = GrantLedger(path)  # the first one has been killed
    kept = {"board:host0:1": file_of(files[0]), "lane:3": file_of(files[1])}
    assert again.inherited and again.of(7) == Entry(3, 5, (2 * MIB, MIB), kept, moved_out=3 * MIB)
    assert again.of(7).granted == Memory(2 * MIB, MIB)
    assert path.stat().st_mode & 0o777 == 0o600, "only the daemon may read it"
    again.forget_others([8])
    assert GrantLedger(path).of(7) == Entry()


def test_a_line_that_was_cut_short_ends_it(path: Path, files: list[int]) -> None:
    ledger = filled(path, files)
    before = ledger.of(7)
    ledger.move(7, 4)
    text = path.read_bytes()
    end = text.index(b"\0")
    path.write_bytes(text[: end - 3] + bytes(len(text) - end + 3))
    assert GrantLedger(path).of(7) == Entry(3, before.bank, before.limits, before.files)


def test_the_file_never_grows_and_keeps_what_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZE", 4096)
    ledger = GrantLedger(path)
    for number in range(1, 2000):
        ledger.limit(1, Memory(number, 0))
        ledger.move(2, number)
    assert path.stat().st_size == 4096
    again = GrantLedger(path)
    assert (again.of(1).limits, again.of(2).lane) == ((1999, 0), 1999)


def test_grants_that_change_nothing_are_not_written(path: Path) -> None:
    ledger = GrantLedger(path)
    ledger.limit(1, Memory(MIB, 0))
    before = path.read_bytes()
    ledger.limit(1, Memory(MIB, 0))
    assert path.read_bytes() == before


def test_a_descriptor_under_the_name_of_another_is_not_believed(path: Path, files: list[int]) -> None:
    filled(path, files)
    forged = {"board:host0:1": os.dup(files[0]), "bank:host0:5": os.dup(files[1])}
    with pytest.raises(BoardError, match="bank:host0:5 that its shim keeps is not the one that it was given"):
        GrantLedger(path).believed(7, forged)
    for fd in forged.values():
        os.close(fd)


def test_what_was_never_given_is_closed(path: Path, files: list[int]) -> None:
    """A lane that the job has left stays: it says that the daemon died while it moved the job."""
    filled(path, files)
    kept = {"lane:3": os.dup(files[1]), "bank:host0:9": os.dup(files[2]), "lane:2": os.dup(files[0])}
    unknown = kept["bank:host0:9"]
    GrantLedger(path).believed(7, kept)
    assert kept.keys() == {"lane:3", "lane:2"}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(unknown)
    for fd in kept.values():
        os.close(fd)


def test_a_restarted_daemon_does_not_believe_a_seat(make_daemon: Make, tmp_path: Path) -> None:
    """A job names another lane, and limits beyond all memory, before the daemon is killed."""
    neighbours, liars = tmp_path / "neighbours", tmp_path / "liars"
    for fifo in (neighbours, liars):
        os.mkfifo(fifo)
    daemon = make_daemon("--device", "host:64MiB", "--device", "host:64MiB").started()
    daemon.fake("attach", f"listen:{neighbours}", device="host0")
    lies = ("note:lane:1", f"note:p_limit:{1 << 50}", f"note:bank:{1}", "say:ready", f"listen:{liars}", "iterate:2")
    liar = daemon.fake("attach", f"grow:p:{4 * MIB}", *lies, device="host1", line="ready")
    granted = daemon.until("GrantMemory", liar)["data"]["memory"]
    since = daemon.events()[-1]["seq"]
    daemon.restarted()
    adopted = daemon.until_event(lambda event: event["kind"] == "Adopted" and event["job"] == liar, since)["data"]
    assert (adopted["device"], adopted["lane"]) == ("host1", 2)
    assert adopted["granted"] == granted
    for fifo in (neighbours, liars):
        fifo.write_text("go\n")
    assert daemon.wait(liar)["outcome"] == "succeeded", daemon.log()


def test_what_cannot_be_written_is_written_with_the_next_note(
    path: Path, files: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = filled(path, files)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        ledger.move(7, 4)
    ledger.give_bank(7, 6)
    ledger.close()
    found = GrantLedger(path).of(7)
    assert (found.lane, found.bank) == (4, 6)


def test_a_write_that_takes_a_part_only_is_completed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, data[:5], offset))
    ledger = GrantLedger(path)
    ledger.move(7, 3)
    ledger.move(8, 4)
    ledger.close()
    found = GrantLedger(path)
    assert (found.of(7).lane, found.of(8).lane) == (3, 4)


# Names under which shims keep extents


BANK = memory_name(MemoryClass.PERSISTENT, "cuda0", 3)


def test_names_say_where_an_extent_lies_and_extents_are_found_in_order() -> None:
    assert extent_names(BANK, [32, 8]) == ["bank:cuda0:3:0:32", "bank:cuda0:3:32:8"]
    assert extent_names(memory_name(MemoryClass.EPHEMERAL, "cuda0", 7), [4]) == ["lane:7:0:4"]
    kept = {"bank:cuda0:3:32:8": 5, "lane:3:0:4": 6, "bank:cuda0:3:0:32": 7, "bank:cuda0:33:0:2": 8}
    assert kept_extents(BANK, kept) == [Extent(7, 32), Extent(5, 8)]
    assert kept_extents("lane:9", kept) == []


@pytest.mark.parametrize("name", ["bank:cuda0:3:8:8", "bank:cuda0:3:0:0", "bank:cuda0:3:x:8", "bank:cuda0:3:8"])
def test_gaps_and_nonsense_are_refused(name: str) -> None:
    with pytest.raises((DeviceError, ValueError)):
        kept_extents(BANK, {name: 5})
