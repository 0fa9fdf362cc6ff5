"""CUDA graphs: what was captured is computed at every replay, on what lies at its addresses by then."""

from __future__ import annotations

from typing import Any

import torch

from .device import EmulatedDevice, Recorded
from .generators import Drawing, default_generator


class Graphs:
    """Puts itself in the place of three methods of `torch.cuda.CUDAGraph`."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._graph = torch.cuda.CUDAGraph
        self._begin, self._end, self._replay = self._graph.capture_begin, self._graph.capture_end, self._graph.replay

    def install(self) -> None:
        graphs = self

        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            graphs.begin(graph, args, kwargs)

        def capture_end(graph: Any) -> None:
            graphs.end(graph)

        def replay(graph: Any) -> None:
            graphs.replay(graph)

        self._graph.capture_begin, self._graph.capture_end, self._graph.replay = capture_begin, capture_end, replay

    def begin(self, graph: Any, args: Any, kwargs: Any) -> None:
        """Raises RuntimeError while another graph is captured."""
        if self._device.recording is not None:
            raise RuntimeError("an emulated GPU captures one graph at a time")
        self._begin(graph, *args, **kwargs)
        self._device.recording = graph.emulated_operators = []

    def end(self, graph: Any) -> None:
        try:
            self._end(graph)
        finally:
            self._device.recording = None

    def replay(self, graph: Any) -> None:
        """The launch first: it does the copies that the graph has, which are among the operators, too."""
        operators: list[Recorded] = graph.emulated_operators
        with self._device.lock:
            device = torch.cuda.current_device()
            drawing = Drawing.next_of(default_generator(device))
            self._replay(graph)
            self._device.do(device, lambda: _all(operators, drawing))


def _all(operators: list[Recorded], drawing: Drawing) -> None:
    for operator in operators:
        operator(drawing)
