"""Opening the page in a browser, through a file that only its user can read: all users can read a command line."""

from __future__ import annotations

import asyncio
import html
import os
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path

KEPT_S = 60.0
LOOK_S = 0.5


async def open_in_browser(
    url: str, unused: Callable[[], bool], open_page: Callable[[str], bool] = webbrowser.open
) -> bool:
    """Open a page; return whether a browser was found.  The file goes once the link is used, or in a minute.

    ``open_page``: takes the file's address, and returns whether a browser has been found.
    """
    with tempfile.TemporaryDirectory(prefix="carpool-page-") as folder:  # mode 0700
        path = Path(folder) / "page.html"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_redirect(url))
        found = await asyncio.to_thread(open_page, path.as_uri())
        waited_s = 0.0
        while found and unused() and waited_s < KEPT_S:
            await asyncio.sleep(LOOK_S)
            waited_s += LOOK_S
    return found


def _redirect(url: str) -> str:
    quoted = html.escape(url, quote=True)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Carpool</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={quoted}"></head><body><a href="{quoted}">Carpool</a></body></html>
"""
