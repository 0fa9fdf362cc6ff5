"""Start-up of a job's Python 2.7 to 3.7, in which Carpool's hooks cannot run: no effect until torch is imported.

This file is valid in all these versions.
"""

import os
import sys


def start(_package):  # type: (str) -> None
    """Watch for torch; a job that never imports torch does not need Carpool."""
    if "CARPOOL_JOB" in os.environ and os.environ.get("CARPOOL_DISABLE", "") in ("", "0"):
        sys.meta_path.insert(0, TorchFinder())


class TorchFinder(object):
    """A finder that finds nothing; when torch is imported it warns once that this process is not managed."""

    def __init__(self):  # type: () -> None
        self._module = sys.modules[__name__]  # Python 2.7 empties a module to which nothing refers

    def find_spec(self, name, _path=None, _target=None):  # type: (str, object, object) -> None
        """Find nothing; warn once, when ``torch`` is imported."""
        if name == "torch" and self in sys.meta_path:
            sys.meta_path.remove(self)
            sys.stderr.write(
                "carpool: warning: Python %d.%d is older than 3.8; this process runs without Carpool\n"
                % sys.version_info[:2]
            )

    find_module = find_spec  # what Python 2.7 calls
