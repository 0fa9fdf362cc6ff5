"""What NVIDIA's CUDA runtimes ask of a driver: the tables of the driver's functions have an answer to each query."""

from __future__ import annotations

import re

import pytest

from tests.native.test_functions import entries, passing
from tests.vendor.record import Query, asked, form_of, forms, recorded
from tests.vendor.wheels import RUNTIMES, library, need, requirements, version_of

WHEELS = requirements(RUNTIMES)


def plain(symbol: str) -> tuple[str, str]:
    """cuMemcpy_v2_ptds is the form of cuMemcpy for per-thread streams."""
    match = re.fullmatch(r"(\w+?)(?:_v\d)?(_pt(?:sz|ds))?", symbol)
    assert match is not None
    return match[1], match[2] or ""


def unanswered(queries: dict[Query, tuple[str, list[str]]], hooked: dict[str, int]) -> list[Query]:
    """Those whose name has a wrapper, but not the form that a driver would return."""
    wrapped = {(plain(symbol)[0], f"{version}{plain(symbol)[1]}") for symbol, version in hooked.items()}
    names = {name for name, _ in wrapped}
    return [query for query, (form, _) in queries.items() if query.name in names and (query.name, form) not in wrapped]


def test_each_form_that_a_runtime_gets_of_a_hooked_name_has_a_wrapper() -> None:
    assert unanswered(recorded(), entries()) == []


def test_a_form_without_a_wrapper_is_named() -> None:
    hooked = {symbol: version for symbol, version in entries().items() if symbol != "cuMemcpyHtoD_v2_ptds"}
    assert unanswered(recorded(), hooked) == [Query("cuMemcpyHtoD", 7000, 2)]


def test_every_name_that_a_runtime_asks_for_has_been_decided_on() -> None:
    decided = {plain(symbol)[0] for symbol in [*entries(), *passing()]}
    assert {query.name for query, (form, _) in recorded().items() if form == "-" or query.name not in decided} == set()


def test_every_runtime_of_the_list_is_recorded() -> None:
    by_version = dict.fromkeys(map(version_of, WHEELS), 0)
    for _, runtimes in recorded().values():
        for version in runtimes:
            by_version[version] += 1
    assert all(count > 400 for count in by_version.values()), by_version


@pytest.mark.nightly("loads NVIDIA's libraries", stays="test_every_runtime_of_the_list_is_recorded")
@pytest.mark.parametrize("wheel", WHEELS, ids=version_of)
def test_a_runtime_asks_what_is_recorded(wheel: str) -> None:
    queries = asked(library(need(wheel), r"libcudart\.so\.1\d"))
    kept = {query for query, (_, runtimes) in recorded().items() if version_of(wheel) in runtimes}
    assert queries == kept
    known = forms(need(WHEELS[-1]))
    assert {query: form_of(query, known) for query in queries} == {query: recorded()[query][0] for query in queries}
