"""Models on demand: requests through `carpool serve`, beside training and beside what there is without Carpool.

What PipeSwitch measures (OSDI 2020, figure 5 and table 4): batches of 8, images and sentences of the usual size.  The
training is ResNet-50 with a batch of 32, which waits for no iteration.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.gpu_check.daemon import NEEDED
from tools.gpu_check.registry import Figures, Needs, measure, needs_packages
from tools.gpu_check.scripts import needs_cuda

MODELS = {"resnet152": "resnet152_224", "inception_v3": "inception_v3_299", "bert_base": "bert_base_128"}
ROUNDS, STARTS, WARM_ASKS = 12, 3, 4
#: 0: no bound.
BOUNDS_US = (1000, 2000, 5000, 0)
ASKS, SECONDS = 20, 4.0


def served(model: str) -> Callable[[], Figures]:
    def function() -> Figures:
        needs_serving()
        from tools.gpu_check import serving

        with serving.stage(MODELS[model], serving.GPU) as on:
            return serving.ways(on, ROUNDS, STARTS)

    function.__name__ = f"serving_{model}"
    return function


for each in MODELS:
    title = f"requests that preempt training, or whose weights are not on the device, against ready ones: {each}"
    measure(title, Needs.TORCH)(served(each))


@measure("memory of its own (RssAnon) of a hosted model's worker, before and after requests: inception_v3", Needs.TORCH)
def serving_private_memory() -> Figures:
    needs_serving()
    from tools.gpu_check import serving

    with serving.served(MODELS["inception_v3"], serving.GPU) as served:
        return serving.private_memory(served, MODELS["inception_v3"], WARM_ASKS)


@measure("a request that preempts training, and training beside requests, by run-ahead: resnet152", Needs.TORCH)
def serving_run_ahead() -> Figures:
    needs_serving()
    from tools.gpu_check import serving

    with serving.stage(MODELS["resnet152"], serving.GPU) as on:
        return serving.run_ahead(on, BOUNDS_US, ASKS, SECONDS)


def needs_serving() -> None:
    """Raises Skip."""
    needs_cuda()
    needs_packages(*NEEDED, "click", "numpy", "safetensors")
