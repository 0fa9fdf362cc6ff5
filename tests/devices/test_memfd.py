"""Files of memory: whether their pages can be counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.devices import memfd

NEVER = "always within_size advise [never] deny force\n"


@pytest.mark.parametrize(
    ("every", "two_mib", "small"),
    [
        (NEVER, "always [inherit] within_size advise never\n", True),
        (NEVER, "[always] inherit within_size advise never\n", False),
        ("always within_size [advise] never deny force\n", "always [inherit] within_size advise never\n", False),
        ("always within_size advise never [deny] force\n", "always inherit within_size advise [never]\n", True),
    ],
)
def test_whether_pages_are_small_is_what_the_kernel_says(tmp_path: Path, every: str, two_mib: str, small: bool) -> None:
    (tmp_path / "hugepages-2048kB").mkdir()
    (tmp_path / "shmem_enabled").write_text(every)
    (tmp_path / "hugepages-2048kB/shmem_enabled").write_text(two_mib)
    assert memfd.small_pages_only(tmp_path) is small


def test_a_kernel_without_huge_pages_has_small_ones(tmp_path: Path) -> None:
    assert memfd.small_pages_only(tmp_path)
