"""Commands about turns, each with what must hold when it comes."""

from __future__ import annotations

from carpool.core import commands, events
from tests.core.modelled.facts import Facts
from tests.core.serving import ServiceProcess
from tests.core.suspended import Suspended


class TurnCommands(Facts):
    """What seats say of the turn."""

    def _grantturn(self, command: commands.GrantTurn) -> None:
        process = self.processes[command.job]
        assert self.alone_beside(process) is None, "it computes, though another has the device to itself"
        paused = self.specs[process.id].paused_by is not None and process.id not in self.stopping
        assert not paused or process.paused, "it is paused, and gets a turn"
        assert process.lane == command.lane and not process.offloaded
        assert process.limit.persistent >= process.used.persistent, "it computes without its memory"
        assert process.limit.ephemeral >= process.used.ephemeral, "it computes beyond its lane"
        assert not isinstance(process, ServiceProcess) or process.may_compute(), "it computes without its weights"
        if process.paused:  # its seat says that it does not wait any more
            still = (packet for packet in process.channel if not isinstance(packet[1], events.TurnWanted))
            process.channel = type(process.channel)(still)
        process.turn, process.want, process.yield_, process.watched, process.successor = True, False, 0, False, None
        process.pause, process.paused = 0, False
        if isinstance(process, Suspended):
            process.resume()

    def _namesuccessor(self, command: commands.NameSuccessor) -> None:
        self.processes[command.holder].successor = command.successor

    def _requestyield(self, command: commands.RequestYield) -> None:
        process = self.processes[command.job]
        paused = self.specs[process.id].paused_by is not None
        alone = self.alone(process.id) == process.id and not self.beside_others(process)
        assert not alone or process.asked is not None or paused, "asked, though it is alone"
        if process.turn or (process.paused and command.forced):
            process.yield_, process.pause = 2 if command.forced else 1, 0

    def _pauseturn(self, command: commands.PauseTurn) -> None:
        process = self.processes[command.job]
        assert not isinstance(process, Suspended | ServiceProcess)
        if process.turn:
            process.yield_, process.watched, process.pause = 0, False, 2 if command.forced else 1

    def _denyturn(self, command: commands.DenyTurn) -> None:
        process = self.processes[command.job]
        assert isinstance(process, ServiceProcess) and command.reason.text
        process.want = False
        process.program.iterations, process.program.code, process.at = 0, 1, len(process.program.steps)

    def _watchidle(self, command: commands.WatchIdle) -> None:
        assert command.grace_us > 0
        process = self.processes[command.job]
        alone = self.alone(process.id) == process.id and not self.beside_others(process)
        assert not alone or process.asked is not None, "watched, though it is alone"
        process.watched = process.turn

    def _withdrawyield(self, command: commands.WithdrawYield) -> None:
        self.processes[command.job].yield_ = self.processes[command.job].pause = 0
        self.processes[command.job].watched = False
