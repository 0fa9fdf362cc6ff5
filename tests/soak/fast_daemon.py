"""The daemon with a day that lasts an hour: what is kept for hours and days is kept for a twenty-fourth of that."""

import sys
from dataclasses import replace

from carpool.daemon import __main__ as daemon
from carpool.daemon import app
from carpool.daemon.hooks import retention
from carpool.daemon.journal import usage

FASTER = 24

retention.YOUNG //= FASTER
retention.INTERVAL_S /= FASTER
minutes = usage.DEVICES.levels[0]
faster = minutes._replace(age_us=minutes.age_us // FASTER)
faster_series = replace(usage.DEVICES, keep_us=usage.DEVICES.keep_us // FASTER, levels=(faster,))
app.DEVICES = faster_series  # type: ignore[attr-defined]
sys.exit(daemon.main())
