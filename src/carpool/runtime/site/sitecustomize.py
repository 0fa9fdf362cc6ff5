"""Run by every Python of a Carpool job, before the script.  It must never break one.

This directory lies first in ``PYTHONPATH``, so that the ``site`` module finds this file.  It prepares the job
(`_carpool_startup`), takes its directory off ``sys.path`` and makes way for the sitecustomize that it hides.
"""

import sys


def _start() -> None:
    import os

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would double the cost of a start
    try:
        import _carpool_startup  # type: ignore[import-not-found]

        _carpool_startup.start(os.path.dirname(os.path.dirname(here)))  # noqa: PTH120
    except Exception as error:  # noqa: BLE001 - the user's program runs in any case
        print(f"carpool: warning: {error!r}; this process runs without Carpool", file=sys.stderr)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    sys.modules.pop("_carpool_startup", None)


_start()
del sys.modules[__name__]
# The hidden one.  If there is none, this ImportError is what the `site` module expects.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
