"""The report: one self-contained HTML page about simulations of a trace.

Importing this loads plotly; import it only when a report is wanted.
"""

from carpool.sim.report.page import write_report, write_study

__all__ = ["write_report", "write_study"]
