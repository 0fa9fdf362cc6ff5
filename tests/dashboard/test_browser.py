from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from carpool.dashboard.browser import Opener

ADDRESS = "http://127.0.0.1:5/#link=abc"


async def test_the_browser_gets_a_file_that_only_its_user_can_read_and_that_goes_with_the_link() -> None:
    opened: list[Path] = []
    unused = [True]

    def open_page(url: str) -> bool:
        opened.append(Path(unquote(urlsplit(url).path)))
        assert ADDRESS not in url and ADDRESS in opened[0].read_text()
        assert [stat.S_IMODE(path.stat().st_mode) for path in (opened[0], opened[0].parent)] == [0o600, 0o700]
        unused[0] = False
        return True

    opener = Opener(open_page)
    try:
        assert await asyncio.wait_for(opener.open(ADDRESS, lambda: unused[0]), 30)
        assert not opened[0].exists()
    finally:
        opener.close()
    assert not opened[0].parent.exists()


async def test_without_a_browser_no_file_stays() -> None:
    opener = Opener(lambda url: False)
    try:
        assert not await opener.open(ADDRESS, lambda: True)
        assert not list(opener._folder.iterdir())
    finally:
        opener.close()
