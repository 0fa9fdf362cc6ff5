"""What libcarpool hears of a training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.runtime.conftest import Job, Snippets

LOOP = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
"""


def steps(*firsts: int, number: int = 0) -> list[tuple[str, int, int]]:
    """Only the begin of a step that makes state is of any use to libcarpool."""
    names = {1: ("step_begin", "step_end"), 0: ("step_end",)}
    return [(name, number, first) for first in firsts for name in names[first]]


def test_a_training_loop(snippets: Snippets) -> None:
    done = snippets.run(LOOP)
    assert (done.code, done.err) == (0, "")
    assert done.calls == [("begin_iterations", 0, 0), *steps(1, 0, 0)]


def test_attaches_over_the_job_channel(job: Job) -> None:
    done = job.run("import torch, os; print(os.getpid())")
    assert done.calls == [("attach", job.theirs.fileno(), int(done.out))]


def test_no_hook_on_modules_remains_after_the_first_forward_pass(snippets: Snippets) -> None:
    done = snippets.run(
        """
        import torch
        from torch.nn.modules import module
        original = module._has_any_global_hook.__name__
        print(len(module._global_forward_pre_hooks))
        torch.nn.Linear(2, 2)(torch.ones(1, 2))
        print(len(module._global_forward_pre_hooks), module._has_any_global_hook.__name__)
        """
    )
    assert done.out.split() == ["1", "0", "_has_any_global_hook"]
    assert done.names == ["begin_iterations"]


def test_the_users_own_hooks_still_run_around_the_one_that_removes_itself(snippets: Snippets) -> None:
    done = snippets.run(
        """
        import torch
        from torch.nn.modules.module import register_module_forward_pre_hook
        seen = []
        register_module_forward_pre_hook(lambda module, args: seen.append("global"))
        layer = torch.nn.Linear(2, 2)
        layer.register_forward_pre_hook(lambda module, args: seen.append("own"))
        layer(torch.ones(1, 2)); layer(torch.ones(1, 2))
        print(seen)
        """
    )
    assert done.out.strip() == "['global', 'own', 'global', 'own']"


def test_a_loop_without_modules_begins_its_iterations_at_the_first_step(snippets: Snippets) -> None:
    done = snippets.run(
        """
        import torch
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            weight.sum().backward()
            optimizer.step()
        """
    )
    assert done.calls == [*steps(1), ("begin_iterations", 0, 0), *steps(0)]


def test_optimizers_have_numbers_and_their_own_first_steps(snippets: Snippets) -> None:
    done = snippets.run(
        """
        import torch
        def optimizer():
            weight = torch.ones(3, requires_grad=True)
            weight.grad = torch.ones(3)
            return torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        one, two = optimizer(), optimizer()
        one.step(); two.step(); one.step()
        del one
        optimizer().step()  # its number is free again
        two.step()
        """
    )
    assert done.steps == [
        *steps(1, number=0),
        *steps(1, number=1),
        *steps(0, number=0),
        *steps(1, number=0),
        *steps(0, number=1),
    ]


NEW_PARAMETERS = """
import torch
def weight():
    new = torch.ones(3, requires_grad=True); new.grad = torch.ones(3); return new
optimizer = torch.optim.SGD([weight()], lr=0.1, momentum=0.9)
optimizer.step(); optimizer.step()
optimizer.add_param_group({"params": [weight()]})
optimizer.step(); optimizer.step()
"""
CLOSURE = """
import torch
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.LBFGS([weight], max_iter=2)
def closure():
    optimizer.zero_grad(); loss = (weight ** 2).sum(); loss.backward(); return loss
optimizer.step(closure)
optimizer.step(closure=closure)
"""


@pytest.mark.parametrize(
    ("script", "firsts"), [(NEW_PARAMETERS, [1, 0, 1, 0]), (CLOSURE, [0, 0])], ids=["new parameters", "closure"]
)
def test_steps_that_make_state(snippets: Snippets, script: str, firsts: list[int]) -> None:
    """Those after new parameters do so again, and one with a closure is no first step."""
    done = snippets.run(script)
    assert [first for name, _, first in done.calls if name == "step_end"] == firsts


def test_a_step_that_fails_is_the_first_one_still(snippets: Snippets) -> None:
    done = snippets.run(
        """
        import torch
        weight = torch.ones(3, requires_grad=True); weight.grad = torch.ones(3)
        optimizer = torch.optim.Adam([weight], lr=0.1)
        optimizer.param_groups[0]["lr"] = None
        try:
            optimizer.step()
        except TypeError as error:
            print("seen")
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step(); optimizer.step()
        """
    )
    assert done.out == "seen\n"
    assert done.steps == [("step_begin", 0, 1), *steps(1, 0)]


@pytest.mark.parametrize("answer", ["1", "2", "-1"], ids=["refused", "may attach later", "it fails"])
def test_a_process_that_does_not_attach_runs_plainly(job: Job, answer: str) -> None:
    """And says so once if it is a fault."""
    done = job.run(LOOP, CP_ANSWER=answer)
    assert (done.code, done.names[0]) == (0, "attach")
    assert done.calls[1:] == ([("begin_iterations", 0, 0), *steps(1, 0, 0)] if answer == "2" else [])
    said = ["carpool: warning:", "the recorder was told to fail"]
    assert [done.err.count(text) for text in said] == [int(answer == "-1")] * 2 and bool(done.err) == (answer == "-1")


def test_compiled_modules_and_functions_see_nothing_of_the_hooks(whole_snippets: Snippets) -> None:
    script = """
        import sys, torch
        from torch._dynamo.utils import counters
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if {module}:
            model = torch.compile(model, backend="eager", fullgraph=True)
        def loss():
            return model(torch.ones(1, 4)).sum()
        if not {module}:
            loss = torch.compile(loss, backend="eager", fullgraph=True)
        for _ in range(4):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
        """
    for module in (True, False):
        done = whole_snippets.run(script.format(module=module))
        assert (done.code, done.out, done.err) == (0, "1 {}\n", "")
        assert done.calls == [("begin_iterations", 0, 0), *steps(1, 0, 0, 0)]


def test_a_compiled_optimizer_step_is_seen(whole_snippets: Snippets) -> None:
    done = whole_snippets.run(
        """
        import torch
        weight = torch.ones(3, requires_grad=True); weight.grad = torch.ones(3)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(3):
            step()
        """
    )
    assert done.code == 0
    assert done.steps == steps(1, 0, 0)


def test_hooks_do_next_to_nothing_per_step(snippets: Snippets) -> None:
    """What they cost is what they call: each call here is some hundred instructions."""
    done = snippets.run(
        """
        import sys, torch
        weight = torch.ones(3, requires_grad=True); weight.grad = torch.ones(3)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        optimizer.step()
        from torch.optim import optimizer as module
        hooks = [*module._global_optimizer_pre_hooks.values(), *module._global_optimizer_post_hooks.values()]
        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append(event))
        for hook in hooks:
            hook(optimizer, (optimizer,), {})
        sys.setprofile(None)
        print(len(hooks), sum(event in ("call", "c_call") for event in calls))
        """
    )
    count, calls = done.out.split()
    assert count == "2"
    assert int(calls) <= 13


def test_a_turn_that_ends_at_a_step_is_followed_by_the_list(snippets: Snippets) -> None:
    done = snippets.run(
        """
        import os, torch
        os.environ["CP_TURN_ENDS"] = "1"
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        def step():
            weight.sum().backward()
            optimizer.step()
        step()
        block = {"address": 4096, "size": 512, "state": "active_allocated"}
        segment = {"address": 4096, "total_size": 1024, "segment_pool_id": (0, 0), "blocks": [block]}
        torch.cuda.is_initialized = lambda: True
        torch.cuda.memory_snapshot = lambda include_traces: [segment]
        step()
        """
    )
    assert (done.code, done.err) == (0, "")
    ends = [call for call in done.calls if call[0] in ("step_end", "live_blocks", "block")]
    assert ends == [
        ("step_end", 0, 1),
        ("live_blocks", -1, 0),
        ("step_end", 0, 0),
        ("live_blocks", 2, 0),
        ("block", 4096, 0),
        ("block", 4096, 512),
    ]


def test_a_turn_that_ends_at_an_announced_iteration_is_followed_by_the_list(snippets: Snippets) -> None:
    done = snippets.run(
        """
        import os, carpool
        os.environ["CP_TURN_ENDS"] = "1"
        with carpool.iteration():
            pass
        """
    )
    assert (done.code, done.err) == (0, "")
    assert done.calls == [("iteration_begin", 0, 0), ("iteration_end", 0, 0), ("live_blocks", -1, 0)]


ON_GPU = """
import contextlib, os, torch

def record(name):
    with open(os.environ["CP_RECORD"], "a") as file:
        print(name, 0, 0, file=file)

@contextlib.contextmanager
def use_mem_pool(pool, device):
    record("pool_enter")
    yield
    record("pool_leave")

torch.cuda.MemPool, torch.cuda.use_mem_pool = object, use_mem_pool
torch.cuda.is_current_stream_capturing = lambda: False

class OnGpu(torch.nn.Parameter):
    is_cuda = True

weight = OnGpu(torch.ones(3))
weight.grad = torch.ones(3)
optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, foreach=False)
"""


def test_only_steps_that_make_state_use_the_pool(snippets: Snippets) -> None:
    done = snippets.run(ON_GPU + "optimizer.step(); optimizer.step()")
    assert (done.code, done.err) == (0, "")
    assert [name for name in done.names if name != "begin_iterations"] == [
        *("step_begin", "pool_enter", "pool_leave", "step_end"),
        "step_end",
    ]


def test_a_step_that_fails_leaves_the_pool_to_the_next_one(snippets: Snippets) -> None:
    done = snippets.run(
        ON_GPU
        + """
good, optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"], None
try:
    optimizer.step()
except TypeError:
    print("seen")
optimizer.param_groups[0]["lr"] = good
optimizer.step()
"""
    )
    assert (done.code, done.out) == (0, "seen\n")
    assert done.names[:4] == ["step_begin", "pool_enter", "pool_leave", "step_begin"]
    assert done.names.count("pool_enter") == done.names.count("pool_leave") == 2
