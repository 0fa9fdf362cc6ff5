from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from carpool.dashboard.process import open_in_browser

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

    assert await asyncio.wait_for(open_in_browser(ADDRESS, lambda: unused[0], open_page), 30)
    assert not opened[0].exists() and not opened[0].parent.exists()


async def test_without_a_browser_no_file_stays() -> None:
    asked: list[str] = []
    assert not await open_in_browser(ADDRESS, lambda: True, lambda url: bool(asked.append(url)))
    assert not Path(unquote(urlsplit(asked[0]).path)).parent.exists()
