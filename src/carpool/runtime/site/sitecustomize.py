"""Run by every Python of a Carpool job, before the script.  It must never break one: valid from Python 2.7 on.

This directory lies first in ``PYTHONPATH``, so that the ``site`` module finds this file.  It prepares the job
(`_carpool_startup`), removes its directory from ``sys.path`` and imports the sitecustomize that it hides.
"""

import sys


def _start():  # type: () -> None
    import os

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would double the cost of a start
    try:
        if sys.version_info < (3, 8):
            import _carpool_old_python as startup  # type: ignore[import-not-found]
        else:
            import _carpool_startup as startup  # type: ignore[import-not-found]
        startup.start(os.path.dirname(os.path.dirname(here)))  # noqa: PTH120
    except Exception as error:  # noqa: BLE001 - the user's program runs in any case
        sys.stderr.write("carpool: warning: %r; this process runs without Carpool\n" % (error,))
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    sys.modules.pop("_carpool_startup", None)
    sys.modules.pop("_carpool_old_python", None)


_start()
_this = sys.modules.pop(__name__)  # Python 2.7 would empty a module to which nothing refers
# The hidden module.  If there is none, the `site` module expects this ImportError.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
