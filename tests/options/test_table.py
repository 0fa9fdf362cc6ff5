"""The table of options agrees with requests, and no option is known in many places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from carpool.core.model import JobSpec
from carpool.options.requests import BOUNDS, changed_options, told_to_core
from carpool.options.table import JOINING_OPTIONS, KEYS, OPTIONS, UPDATES
from carpool.protocol.api import JobUpdate, SubmitRequest
from carpool.protocol.session import JoinOptions

SOURCE = Path(__file__).parents[2] / "src/carpool"
MOST_FILES = 8
#: Packages that know no submissions: the core and what drives it with jobs of its own.
OTHERS = ("core", "policy_check", "sim")
#: What has a description of a job as it was submitted, or as it is shown.
DESCRIPTIONS = {"SubmitRequest", "JobInfo", "JobUpdate", "JoinOptions", "JobSpec", "JobRecord"}
#: Fields whose names are words of much else, such as the memory that a job uses: these count where a submission is.
COMMON = {"name", "iterations", "persistent_bytes", "ephemeral_bytes", "device", "notify", "output", "error"}
SUBMISSIONS = {"spec", "request", "asked", "wanted"}
FIELDS = [name for option in OPTIONS for name in option.fields]


@cache
def modules() -> dict[str, ast.Module]:
    paths = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in OTHERS]
    found = {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in paths}
    return {name: module for name, module in found.items() if DESCRIPTIONS & set(words(module))}


def words(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def last_word(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def uses(node: ast.AST) -> Iterator[str]:
    """The fields that a node reads or sets."""
    if isinstance(node, ast.Attribute) and (node.attr not in COMMON or last_word(node.value) in SUBMISSIONS):
        yield node.attr
    if isinstance(node, ast.Call):
        about = last_word(node.func) in DESCRIPTIONS
        yield from (each.arg for each in node.keywords if each.arg and (about or each.arg not in COMMON))


def test_an_option_is_known_in_few_files() -> None:
    known: dict[str, set[str]] = {field: set() for field in FIELDS}
    for name, module in modules().items():
        for field in {field for node in ast.walk(module) for field in uses(node)} & set(FIELDS):
            known[field].add(name)
    many = {field: sorted(files) for field, files in known.items() if len(files) > MOST_FILES}
    assert not many, f"an option is a matter of its row: {many}"


def test_fields_are_read_by_computed_names_in_the_table_alone() -> None:
    for name, module in modules().items():
        calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and last_word(node.func) == "getattr"]
        on = {last_word(call.args[0]) for call in calls if not isinstance(call.args[1], ast.Constant)}
        assert name.startswith("options/") or not on & SUBMISSIONS, name


def test_rows_name_fields_of_requests() -> None:
    assert set(FIELDS) <= set(SubmitRequest.__struct_fields__) and len(set(FIELDS)) == len(FIELDS)
    assert {name for option in UPDATES.values() for name in option.fields} == set(JobUpdate.__struct_fields__)
    joining = {name for option in JOINING_OPTIONS for name in option.fields}
    assert joining | {"launcher", "launcher_ends_us"} == set(JoinOptions.__struct_fields__)
    assert "begin" in KEYS and "array" not in KEYS


def test_every_number_of_a_request_has_a_bound() -> None:
    numbers = [field.name for field in msgspec.structs.fields(SubmitRequest) if field.type in (int, int | None)]
    assert set(BOUNDS) == set(numbers) - {"array", "retry_of"}, "these two are the daemon's own"


def test_what_the_core_is_told_comes_back() -> None:
    asked = SubmitRequest(["true"], "/", {}, name="x", weight=3, limit_signal=2, group="g", exclusive=True)
    assert told_to_core(JobSpec(owner=1, **told_to_core(asked))) == told_to_core(asked)


def test_a_change_is_named_by_its_option() -> None:
    before = SubmitRequest(["true"], "/", {})
    after = msgspec.structs.replace(before, after_any=[1], time_us=3, hold=True)
    assert set(changed_options(before, after)) == {"after", "time"}, "a hold is not a matter of update"
