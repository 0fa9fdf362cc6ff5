"""The daemon with a day that lasts an hour: what is kept for hours and days is kept for a twenty-fourth of that."""

import sys

from carpool.daemon import __main__ as daemon
from carpool.daemon.journal import device_history
from carpool.daemon.retention import pruner, selection

FASTER = 24

selection.YOUNG //= FASTER
pruner.INTERVAL_S /= FASTER
device_history.KEEP = {step: kept // FASTER for step, kept in device_history.KEEP.items()}
sys.exit(daemon.main())
