"""Makes this copy of Carpool importable in any interpreter, and no other package of the place where it is installed.

`carpool estimate` runs in the job's environment, which need not have Carpool, and whose packages must not be mixed with
those that lie beside Carpool: a search path would do that.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> int:
    """Import this copy of Carpool by its path and answer the request; see `carpool.estimate.__main__`."""
    package = Path(__file__).resolve().parents[1]
    del sys.path[0]  # this directory: its files must not be importable as top-level modules
    sys.path.insert(0, "")
    place = importlib.util.spec_from_file_location(
        "carpool", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    sys.modules["carpool"] = module
    place.loader.exec_module(module)
    from carpool.estimate.__main__ import main as answer

    return answer()


if __name__ == "__main__":
    sys.exit(main())
