"""Problems that the command line itself finds, before or beside the daemon."""

from __future__ import annotations

from carpool.cli.base.exit_codes import Exit
from carpool.protocol.api import ErrorInfo


class Problem(Exception):
    """Ends the command.  ``info``: what is wrong and what to do, for users; ``exit_code``: for scripts."""

    def __init__(self, exit_code: Exit, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.info = ErrorInfo(code=code, message=message, hint=hint)
