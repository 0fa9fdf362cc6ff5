"""Policies from files, modules and installed packages, and what is said about those that are none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from carpool.core.policies import POLICIES, available_policies, load_policy
from carpool.core.policies.placement import PLACEMENTS, load_placement
from carpool.plugins import announced_placements, announced_policies, ensure_placement, ensure_policy
from carpool.protocol.setting_text import absolute_name, split_name

CODE = """
from carpool.core.policies import BasePolicy

class Mine(BasePolicy):
    name = "mine"
    settings = ("{setting}",)

class Fails(BasePolicy):
    def __init__(self):
        raise RuntimeError("not today")

class Empty:
    name = "empty"

def function():
    return Mine()
"""
PLACEMENT = """
from carpool.core.placement import BasePlacement

class Fewest(BasePlacement):
    name = "fewest"

    def device_key(self, view, job, device):
        return (len(device.jobs),)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded here is unknown to other tests."""
    monkeypatch.setattr(POLICIES, "_registered", {})
    monkeypatch.setattr(PLACEMENTS, "_registered", {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A policy that nobody else can write to, whatever the umask."""
    (tmp_path / "own").mkdir(mode=0o755)
    path = tmp_path / "own" / "mine.py"
    path.write_text(CODE.format(setting="patience_us"))
    path.chmod(0o644)
    return path


def settings_of(name: str, *, trusted: bool = False) -> tuple[str, ...]:
    ensure_policy(name, trusted=trusted)
    return load_policy(name).settings


# Where they come from


def test_carpools_own_need_no_loading() -> None:
    for name in available_policies():
        ensure_policy(name)
    assert [load_policy(name).name for name in available_policies()] == list(available_policies())


@pytest.mark.parametrize("trusted", [False, True])
def test_a_file(file: Path, trusted: bool) -> None:
    assert settings_of(f"{file}:Mine", trusted=trusted) == ("patience_us",)


def test_a_file_named_from_here_or_from_home(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("HOME", str(file.parent))
    for name in ("mine.py:Mine", "./mine.py:Mine", "~/mine.py:Mine"):
        assert settings_of(name) == ("patience_us",)
        assert absolute_name(name) == f"{file}:Mine"


def test_a_link_is_named_by_what_it_leads_to(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to(file)
    assert absolute_name(f"{tmp_path}/link.py:Mine") == f"{file}:Mine"


@pytest.mark.parametrize("name", ["srtf", "package.module:Class", "no colon.py"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert absolute_name(name) == name


def test_the_last_colon_counts() -> None:
    assert split_name("/odd:place/mine.py:Mine") == ("/odd:place/mine.py", "Mine")


def test_an_edited_file_is_loaded_anew(file: Path) -> None:
    """Even with the same size and the same time stamp, by which Python tells whether it has compiled a file before."""
    assert settings_of(f"{file}:Mine") == ("patience_us",)
    stamp = file.stat().st_mtime_ns
    file.write_text(CODE.format(setting="patients_us"))
    os.utime(file, ns=(stamp, stamp))
    assert settings_of(f"{file}:Mine") == ("patients_us",)
    assert not (file.parent / "__pycache__").exists()


def test_files_of_one_name_stay_apart(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine.py"
    other.write_text(CODE.format(setting="other_us"))
    assert settings_of(f"{file}:Mine") == ("patience_us",)
    assert settings_of(f"{other}:Mine") == ("other_us",)
    assert load_policy(f"{file}:Mine").settings == ("patience_us",)


def test_a_file_may_define_dataclasses(file: Path) -> None:
    """They look up their module by its name."""
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass, KW_ONLY\n"
        "@dataclass\nclass Pair:\n    _: KW_ONLY\n    a: int = 1\n" + CODE
    )
    ensure_policy(f"{file}:Mine")


def test_a_broken_edit_leaves_the_policy_as_it_was(file: Path) -> None:
    name = f"{file}:Mine"
    ensure_policy(name)
    file.write_text("class Mine(")
    with pytest.raises(ValueError, match="cannot be imported: SyntaxError"):
        ensure_policy(name)
    assert load_policy(name).settings == ("patience_us",)


def test_a_module() -> None:
    assert settings_of("tests.core.smallest:Smallest") == ("patience_us",)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution that announces policies, as `pip install --target` leaves it."""
    site = tmp_path / "site"
    metadata = site / "lottery-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "lottery_policies.py").write_text(CODE.format(setting="tickets"))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lottery\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[carpool.policies]\n"
        "lottery = lottery_policies:Mine\n"
        "gone = lottery_policies:Gone\n"
        "nowhere = no_such_package:Mine\n"
        "fifo = lottery_policies:Mine\n"
    )
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "lottery_policies", raising=False)
    return site


def test_an_installed_package(installed: Path) -> None:
    assert announced_policies() == ("fifo", "gone", "lottery", "nowhere")
    assert settings_of("lottery") == ("tickets",)


def test_nobody_takes_the_place_of_one_of_carpools_own(installed: Path) -> None:
    assert settings_of("fifo") == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "cannot load 'Gone' from 'lottery_policies': module 'lottery_policies' has no attribute 'Gone'"),
        ("nowhere", "cannot load 'Mine' from 'no_such_package': No module named 'no_such_package'"),
        ("raffle", "unknown policy 'raffle'; known policies: fair, .*tq, fifo, gone, lottery, nowhere; or one of"),
    ],
)
def test_a_package_that_announces_too_much(installed: Path, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ensure_policy(name)


# What is wrong with others


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lottery", "unknown policy 'lottery'; known policies: fair, srtf, .*; or one of yours, as path.py:Class"),
        ("", "unknown policy ''"),
        (":Mine", "unknown policy ':Mine'"),
        ("no.such.module:Policy", "cannot load 'Policy' from 'no.such.module': No module named 'no'"),
        ("tests.core.smallest:Gone", "has no attribute 'Gone'"),
        ("tests.core.scenario:Scenario", "is not a policy: it has no name, .*; derive it from BasePolicy"),
        ("tests.core.scenario:estimate", "'estimate' of 'tests.core.scenario' is not a class"),
        ("/no/such/file.py:Mine", "cannot load 'Mine' from '/no/such/file.py': there is no file /no/such/file.py"),
        ("{file}:", "has no attribute ''"),
        ("{file}:Gone", "has no attribute 'Gone'"),
        ("{file}:Empty", "is not a policy: it has no backfill, by_user, settings"),
        ("{file}:Fails", "is not a policy: making one fails: RuntimeError: not today"),
        ("{file}:function", "is not a class"),
        ("{directory}/folder.py:Mine", "there is no file"),
    ],
)
def test_what_is_wrong_is_said(file: Path, name: str, said: str) -> None:
    (file.parent / "folder.py").mkdir()
    with pytest.raises(ValueError, match=said):
        ensure_policy(name.format(file=file, directory=file.parent))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit('bye')", "cannot be imported: SystemExit: bye"),
        ("import no_such_thing", "cannot load 'Mine' from '.*mine.py': No module named 'no_such_thing'"),
        ("\0", "cannot be imported: (SyntaxError|ValueError): source code .*null bytes"),
    ],
)
def test_a_file_that_cannot_be_imported(file: Path, text: str, said: str) -> None:
    before = set(sys.modules)
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        ensure_policy(f"{file}:Mine")
    assert not [name for name in set(sys.modules) - before if name.startswith("carpool_plugin")]


# Whom a daemon trusts


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_change_is_not_trusted(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ValueError, match=f"not loaded: others may write to {file}; chmod go-w {file}"):
        ensure_policy(f"{file}:Mine", trusted=True)
    ensure_policy(f"{file}:Mine")  # the simulator does not mind


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_directory_in_which_others_may_replace_it(file: Path, mode: int) -> None:
    file.parent.chmod(mode)
    with pytest.raises(ValueError, match=f"others may write to {file.parent}; chmod go-w {file.parent}$"):
        ensure_policy(f"{file}:Mine", trusted=True)
    ensure_policy(f"{file}:Mine")


def test_a_directory_further_up(file: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ValueError, match=f"others may write to {tmp_path};"):
        ensure_policy(f"{file}:Mine", trusted=True)
    tmp_path.chmod(0o1777)  # as /tmp: nobody can replace what is not theirs
    ensure_policy(f"{file}:Mine", trusted=True)


def test_a_link_through_a_directory_of_others(file: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "link.py").symlink_to(file)
    ensure_policy(f"{tmp_path}/open/link.py:Mine", trusted=True)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ValueError, match=f"others may write to {tmp_path}/open;"):
        ensure_policy(f"{tmp_path}/open/link.py:Mine", trusted=True)


@needs_root
def test_a_file_of_somebody_else(file: Path) -> None:
    os.chown(file, 65534, 65534)
    with pytest.raises(ValueError, match=rf"{file} belongs to uid 65534, not to uid 0; .*chown 0 {file}"):
        ensure_policy(f"{file}:Mine", trusted=True)


@needs_root
def test_a_directory_of_somebody_else(file: Path) -> None:
    os.chown(file.parent, 65534, 65534)
    with pytest.raises(ValueError, match=f"{file.parent} belongs to uid 65534"):
        ensure_policy(f"{file}:Mine", trusted=True)


def test_nothing_of_a_file_that_is_not_trusted_is_run(file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "it-ran"
    file.write_text(f"open({str(trace)!r}, 'w')")
    file.chmod(0o666)
    with pytest.raises(ValueError, match="not loaded"):
        ensure_policy(f"{file}:Mine", trusted=True)
    assert not trace.exists()


def test_a_placement_policy_comes_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "fewest.py").write_text(PLACEMENT)
    name = f"{tmp_path}/fewest.py:Fewest"
    ensure_placement(name)
    assert load_placement(name).name == "fewest"
    ensure_placement("magm")
    assert announced_placements() == ()
    with pytest.raises(ValueError, match="known: magm, exclusive, best-fit, first-fit, lug, round-robin; or one"):
        ensure_placement("fewest")
    with pytest.raises(ValueError, match="cannot load 'Other'"):
        ensure_placement(f"{tmp_path}/fewest.py:Other")
