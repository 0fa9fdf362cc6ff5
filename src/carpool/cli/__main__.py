"""``python -m carpool.cli``."""

from __future__ import annotations

import sys

from carpool.cli.main import main

sys.exit(main())
