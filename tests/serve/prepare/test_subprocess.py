"""Models prepared in processes of their own, and what becomes of those that cannot be."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.models import ModelRequest
from carpool.runtime.launch import site_directory
from carpool.runtime.native import library_path
from carpool.serve.model.image_store import OverBudget, is_image
from carpool.serve.model.weights_device import WeightsMemory
from carpool.serve.oip.values import TensorSpec
from carpool.serve.prepare.subprocess import CannotPrepare, PreparedModel, prepare
from tests.descriptors import descriptors
from tests.tiers import all_but_first


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, BoundModel, changed_file, joined, same_bits, hosted, zoo, Stage
    import torch

    from carpool.serve.model.bound_model import BoundModel
    from carpool.serve.model.skeleton import changed_file
    from carpool.serve.prepare.prepare import joined, same_bits
    from tests.serve import hosted, zoo
    from tests.serve.working import Stage


Preparing = Callable[..., Coroutine[Any, Any, PreparedModel]]


@pytest.fixture
def preparing(root: Path, python: str) -> Preparing:
    def begin(
        factory: str,
        *,
        python: str = python,
        cwd: Path = root,
        env: dict[str, str] | None = None,
        module: str = "tests.serve.hosted",
        **others: Any,
    ) -> Coroutine[Any, Any, PreparedModel]:
        options = {"kept": None, "on_gpu": False, "admit": lambda size: None}
        options |= {name: others.pop(name) for name in options if name in others}
        spec = ModelRequest(f"{module}:{factory}", python, str(cwd), {}, **{"max_batch": 4} | others)
        return prepare(spec, factory, env=dict(os.environ) | {"PYTHONPATH": str(root)} | (env or {}), **options)

    return begin


async def test_an_image_and_what_the_model_takes(preparing: Preparing, tmp_path: Path) -> None:
    before, sizes = descriptors(), list[int]()
    kept = tmp_path / "profile.json"
    made = await preparing("brain", kept=kept, admit=sizes.append)
    assert sizes == [made.entry.layout.size]
    assert is_image(made.image, sizes[0])
    assert kept.exists()
    assert made.model.name == "brain"
    assert made.model.inputs == (TensorSpec("input", "BF16", (-1, 16, zoo.WIDTH)),)
    assert made.model.outputs == (TensorSpec("output", "BF16", (-1, 16, zoo.WIDTH)),)
    assert made.model.max_batch == 4
    device = os.memfd_create("device")
    os.ftruncate(device, made.entry.device_bytes)
    model, x = BoundModel(made.entry, made.image, WeightsMemory(device)), zoo.INPUTS["brain"]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(made.entry.source.seed)
        alone = hosted.brain()
    assert same_bits(model(x), alone(x))
    model.close()
    os.close(device)
    os.close(made.image)
    assert descriptors() == before


async def test_groups_for_workers_on_gpus(preparing: Preparing) -> None:
    """Four layers, and a few hundred KiB in all: one group."""
    made = await preparing("brain", on_gpu=True)
    os.close(made.image)
    assert len(made.entry.layout.bounds) == 1 + len(joined(made.entry.profile)) == 2


async def test_an_environment_that_was_captured_in_a_job(preparing: Preparing, tmp_path: Path, root: Path) -> None:
    env = {"PYTHONPATH": f"{site_directory()}:{root}", "CARPOOL_JOB": "3", "LD_PRELOAD": str(library_path())}
    made = await preparing("tied", cwd=tmp_path, env=env)
    os.close(made.image)


async def test_what_others_put_into_the_directory_replaces_no_module(preparing: Preparing, tmp_path: Path) -> None:
    """The factory itself is found there, and what it has imported is known."""
    for name in ("carpool", "json", "torch", "hashlib", "socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code of another user')")
    (tmp_path / "shop.py").write_text("import parts\nfrom tests.serve.hosted import brain\n")
    (tmp_path / "parts.py").write_text("")
    made = await preparing("brain", cwd=tmp_path, module="shop")
    os.close(made.image)
    files = {file.path for file in made.entry.code}
    assert {str(tmp_path / "shop.py"), str(tmp_path / "parts.py"), hosted.__file__} <= files
    assert torch.__file__ not in files and changed_file(made.entry.code) is None
    (tmp_path / "parts.py").write_text("#")
    assert changed_file(made.entry.code) == str(tmp_path / "parts.py")
    assert not (tmp_path / "__pycache__").exists(), "an old one would be taken for the new file's"


@pytest.mark.parametrize(
    ("options", "why"),
    all_but_first(
        [
            ({"python": "/nowhere/python"}, "^/nowhere/python cannot be started in /.*: No such file"),
            ({"cwd": Path("/nowhere")}, "cannot be started in /nowhere: No such file"),
            ({"python": "/bin/true"}, r"ended \(status 0\): it said nothing"),
            ({"factory": "raising"}, "^LookupError: no such architecture$"),
            ({"factory": "killed"}, "was killed by SIGKILL"),
            (
                {"factory": "without_example"},
                "does not describe its inputs: let the factory set its attribute `example_inputs`",
            ),
            ({"factory": "leaving"}, "^SystemExit: 3$"),
            ({"factory": "gone"}, "has no function 'gone'"),
            ({"factory": "dying"}, r"ended \(status 5\): it said nothing"),
        ],
        stay=5,
    ),
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
async def test_models_that_cannot_be_prepared(options: dict[str, Any], why: str, preparing: Preparing) -> None:
    before = descriptors()
    with pytest.raises(CannotPrepare, match=why):
        await preparing(**{"factory": "brain"} | options)
    assert descriptors() == before


async def test_weights_that_are_none(preparing: Preparing, tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    with pytest.raises(CannotPrepare, match="not a valid safetensors file"):
        await preparing("brain", weights=str(weights))


async def test_a_model_over_the_budget(preparing: Preparing) -> None:
    def refuse(size: int) -> None:
        raise OverBudget(f"{size} bytes are too many")

    before = descriptors()
    with pytest.raises(CannotPrepare, match=r"\d+ bytes are too many"):
        await preparing("brain", admit=refuse)
    assert descriptors() == before


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ('os.write(int(sys.argv[4]), b"hello, this is no frame")', "sent something else than a model"),
        ('sys.exit("one line\\nlast words")', r"ended \(status 1\): last words"),
        ("import no.such", r"^/.*/python lacks no: install it there"),
        ("import torch, safetensors", r"^/.*/python lacks torch: /.*/python -m pip install torch$"),
    ],
)
async def test_processes_that_prepare_nothing(does: str, why: str, preparing: Preparing, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable} -IS\nimport os, sys\n{does}\n")
    program.chmod(0o755)
    with pytest.raises(CannotPrepare, match=why):
        await preparing("brain", python=str(program))


async def test_cancelled_while_the_factory_runs(preparing: Preparing, stage: Stage) -> None:
    """The process is killed: the rules for all tests look for what is left of it."""
    before = descriptors()
    task = asyncio.create_task(preparing("staying", env=stage.env))
    await stage.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert descriptors() == before
