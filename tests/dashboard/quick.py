"""`carpool dashboard` that looks more often for what is new: ``quick.py PATIENCE_MS ARGUMENT...``.

``PATIENCE_MS``: how long a page may take to say its token.
"""

import sys

from carpool.cli.main import main
from carpool.dashboard import feed, tabs

feed.TURNS_S, feed.CHANGES_S = 0.05, 0.15
feed.PAUSE_S, feed.LONGEST_PAUSE_S = 0.05, 0.2
tabs.PATIENCE_S = int(sys.argv[1]) / 1000
sys.argv = ["carpool", *sys.argv[2:]]
main()
