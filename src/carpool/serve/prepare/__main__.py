"""``python -P -m carpool.serve.prepare.__main__ FD``: prepares one model for the front at the other end of FD.

A process of its own, in the model's interpreter and directory: the front loads no framework, and effects of factories
and weights on a process do not reach it.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from pathlib import Path

from torch import nn

from carpool.protocol.missing_package import lacks
from carpool.serve.model.module_inputs import Example
from carpool.serve.model.profile import Inputs
from carpool.serve.model.skeleton import Unusable
from carpool.serve.model.torch_tensors import named
from carpool.serve.oip.errors import ServeError, text_of
from carpool.serve.prepare.prepare import joined, pipelined, prepare
from carpool.serve.wire.channel import Gone, MessageChannel
from carpool.serve.wire.messages import Admit, Admitted, NotReady, Prepare, Ready, ToPreparer


class Preparer:
    """One preparation, and its messages to the front."""

    def __init__(self, channel: MessageChannel, request: Prepare) -> None:
        self._channel = channel
        self._request = request
        self._example: Example | None = None

    def prepare(self) -> None:
        """Prepare the model.

        Raises what `carpool.serve.prepare.prepare.prepare` and `Example` raise, and Gone.
        """
        request = self._request
        kept = None if request.kept is None else Path(request.kept)
        group = joined if request.on_gpu else pipelined
        made = prepare(request.source, self._inputs, kept=kept, admit=self._admit, group=group)
        assert self._example is not None
        model = self._example.describe(request.name, named(made.answer))
        self._channel.send(Ready(made.entry, model), fd=made.image)

    def _inputs(self, module: nn.Module) -> Inputs:
        self._example = Example(module, self._request.max_batch)
        return self._example.arguments

    def _admit(self, size: int) -> None:
        self._channel.send(Admit(size))
        answer = self._channel.receive()
        if answer is None or not isinstance(answer.message, Admitted):
            raise Gone


def main() -> int:
    """Prepare one model for the front; return the exit code.  The only argument: the descriptor of the socket."""
    channel = MessageChannel(socket.socket(fileno=int(sys.argv[1])), ToPreparer)
    request = channel.receive()
    if request is None or not isinstance(request.message, Prepare):
        return 1
    with suppress(Gone):
        try:
            Preparer(channel, request.message).prepare()
        except Gone:
            raise
        except (Unusable, ServeError) as error:
            channel.send(NotReady(str(error)))
        except ModuleNotFoundError as error:
            channel.send(NotReady(lacks(error.name, sys.executable)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the factory and the model may raise anything
            channel.send(NotReady(text_of(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
