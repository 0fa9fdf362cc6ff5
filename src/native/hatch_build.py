"""Build hook of the wheel: compiles libcarpool.so and gives the wheel its platform tag."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build as native_build  # found by the line above

LIBRARY = "src/carpool/_native/libcarpool.so"


class NativeBuildHook(BuildHookInterface[Any]):
    """Runs for wheels and for editable installs alike; the source archive needs no compiler."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not sys.platform.startswith("linux"):
            sys.exit(f"error: Carpool runs on Linux only, not on {sys.platform}")
        try:
            native_build.build(Path(self.root) / LIBRARY)
        except native_build.BuildError as error:
            # Not an exception that pip would show with the stack of the whole build.
            sys.exit(f"error: libcarpool.so could not be built: {error}")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["artifacts"].append(LIBRARY)
