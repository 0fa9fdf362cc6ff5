"""The report: one HTML page about simulations of a trace, with everything that it needs in it.

Importing this loads plotly; do it when a report is wanted.
"""

from carpool.sim.report.page import write_report

__all__ = ["write_report"]
