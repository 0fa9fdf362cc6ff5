"""Scripts as they are published: devices, formatted losses, checkpoints, schedules, scalers; rehearsed as they are."""

from __future__ import annotations

import copy
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench_estimate import PUBLIC
from benchmarks.jobs import WORKLOADS
from tests.tiers import all_but_first


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global safetensors, torch, nn, Rehearsal, rehearse, Scratch, STEPS
    import safetensors.torch
    import torch
    from torch import nn

    from carpool.estimate.rehearsal.rehearsal import Rehearsal, rehearse
    from carpool.estimate.rehearsal.scratch import Scratch
    from carpool.estimate.rehearsal.watch import STEPS


LIMIT_S = 360.0
INPUTS, WIDTH = 1024, 256  # every tensor is whole grains
Change = Callable[["nn.Module"], "nn.Module"]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2 * WIDTH))


def unchanged(model: nn.Module) -> nn.Module:
    return model


def training(
    change: Change = unchanged,
    also: Callable[[nn.Module, torch.optim.Optimizer, torch.Tensor], object] = lambda *_: None,
    dtype: torch.dtype | None = None,
) -> Rehearsal:
    """A plain loop over a changed model; ``also`` is done after each step."""

    def play() -> None:
        model = change(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            loss = model(torch.zeros(64, INPUTS, dtype=dtype)).sum()
            loss.backward()
            optimizer.step()
            also(model, optimizer, loss)

    return rehearse(play, LIMIT_S)


def memory(seen: Rehearsal) -> tuple[int, int]:
    assert (seen.error, seen.steps) == (None, STEPS)
    return seen.persistent, seen.ephemeral


@pytest.mark.parametrize("change", [lambda m: m.to("cpu"), lambda m: m.float().cpu(), lambda m: m.to(torch.float32)])
def test_a_model_that_moves_to_where_it_is_stays_as_it_is(change: Change) -> None:
    assert memory(training(change)) == memory(training())


def test_half_the_precision_takes_half_the_memory() -> None:
    """The old data are gone; persistent memory has reached as far as both together, one layer's at a time."""
    halved = training(lambda m: m.bfloat16(), dtype=torch.bfloat16)
    whole = training()
    memory(halved), memory(whole)
    assert halved.features.parameter_bytes == halved.features.gradient_bytes == whole.features.parameter_bytes // 2
    assert 0.4 * whole.ephemeral < halved.ephemeral < 0.6 * whole.ephemeral
    assert whole.persistent < halved.persistent <= 1.5 * whole.persistent


def found_by(play: Callable[[list[Any]], None]) -> list[Any]:
    """What a script that ends without an error has noted."""
    found: list[Any] = []
    assert rehearse(lambda: play(found), LIMIT_S).error is None
    return found


def test_tied_weights_and_earlier_optimizers_survive_a_move() -> None:
    def play(seen: list[bool]) -> None:
        model = nn.Sequential(nn.Embedding(512, 64), nn.Linear(64, 512, bias=False))
        model[1].weight = model[0].weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.to("cpu").double()
        seen.append(model[0].weight is model[1].weight is optimizer.param_groups[0]["params"][0])
        model(torch.zeros(8, dtype=torch.int64)).sum().backward()
        model.float()
        seen.append(model[0].weight.grad.dtype is torch.float32)
        optimizer.step()

    assert found_by(play) == [True, True]


def test_a_model_from_the_meta_device_counts_once() -> None:
    def on_meta(_: nn.Module) -> nn.Module:
        with torch.device("meta"):
            return network().to_empty(device="cpu")

    plain = training()
    assert memory(training(on_meta)) >= memory(plain)
    assert training(on_meta).features == plain.features


def test_data_of_a_tensor_bring_their_device_and_their_numbers() -> None:
    def play(seen: list[Any]) -> None:
        tensor = torch.tensor(2)
        tensor.data = torch.tensor(3)
        seen.append(tensor.item())
        tensor.data = torch.zeros((), dtype=torch.int64, device="cuda")
        seen.append(tensor.device.type)

    assert found_by(play) == [3, "cuda"]


def test_losses_are_shown_and_compared_as_numbers() -> None:
    shown = []

    def show(_: nn.Module, __: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        losses = torch.zeros(3)
        losses[1] = loss.item()
        assert loss.isfinite() and torch.isfinite(loss).all() and not torch.isnan(loss) and loss.item() < 1e9
        shown.append(f"{loss:.4f} {loss.item():.2e} {losses.mean():6.2f} {torch.tensor(7):03d}")
        str(loss), f"{loss}", f"{losses}"

    memory(training(also=show))
    assert set(shown) == {"1.0000 1.00e+00   1.00 007"}


def test_a_tensor_of_many_numbers_has_no_format() -> None:
    """Nor has a real one."""
    seen = training(also=lambda model, *_: f"{model[0].weight:.3f}")  # type: ignore[index]
    assert isinstance(seen.error, TypeError)


def test_what_was_saved_is_loaded_again(tmp_path: Path) -> None:
    path, loaded = tmp_path / "checkpoint.pt", []

    def save_and_load(model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": torch.tensor(5)}, path)
        content = torch.load(str(path), map_location="cpu")
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        loaded.append(int(content["step"]))

    plain, saving = memory(training()), memory(training(also=save_and_load))
    assert loaded[0] == 5
    assert not path.exists()
    weights = 4 * (INPUTS + 2 * WIDTH) * WIDTH
    assert plain[0] == saving[0]
    assert plain[1] + weights // 2 < saving[1] < plain[1] + 3 * weights  # the copy lives beside model and gradients


def test_a_checkpoint_keeps_no_memory_and_what_was_one_stays_one(tmp_path: Path) -> None:
    same = []

    def save(model: nn.Module, *_: object) -> None:
        copies = {name: value.clone() for name, value in model.state_dict().items()}
        with (tmp_path / "file").open("wb") as file:
            torch.save({"a": copies["0.weight"], "b": copies["0.weight"].detach()}, file)
        del copies
        with (tmp_path / "file").open("rb") as file:
            content = torch.load(file)
        same.append(content["a"] is content["b"])

    first, many = training(also=save), training(also=lambda *all_: [save(*all_) for _ in range(3)])
    assert memory(first) == memory(many)
    assert all(same)


def test_a_file_of_weights_is_read_as_it_is(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "trained.pt")

    def load(model: nn.Module) -> nn.Module:
        model.load_state_dict(torch.load(tmp_path / "trained.pt", map_location="cpu", weights_only=True))
        return model

    memory(training(load))


def test_copies_are_tensors_of_their_own() -> None:
    def play(same: list[Any]) -> None:
        model, number = network(), torch.tensor(3.0)
        twin = copy.deepcopy({"one": model, "two": model, "number": number})
        same += [twin["one"] is twin["two"], twin["number"].item(), isinstance(twin["one"][0].weight, nn.Parameter)]
        twin["one"].load_state_dict(model.state_dict())

    assert found_by(play) == [True, 3.0, True]


def test_memory_has_addresses_by_which_shared_weights_are_found() -> None:
    def play(addresses: list[int]) -> None:
        one, two = torch.zeros(4), torch.zeros(4)
        addresses.extend(tensor.untyped_storage().data_ptr() for tensor in (one, one.view(2, 2), two))

    addresses = found_by(play)
    assert addresses[0] == addresses[1] != addresses[2] != 0


def test_safetensors_are_kept_as_checkpoints_are(tmp_path: Path) -> None:
    def save(model: nn.Module, *_: object) -> None:
        safetensors.torch.save_file(model.state_dict(), tmp_path / "weights.safetensors")
        model.load_state_dict(safetensors.torch.load_file(tmp_path / "weights.safetensors"))

    memory(training(also=save))
    assert not list(tmp_path.iterdir())


def test_scalers_schedules_and_clipping_follow_made_up_numbers() -> None:
    rates = []

    def play() -> None:
        model = network().to("cpu", non_blocking=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
        while True:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.zeros(64, INPUTS)).float().sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            scaler.step(optimizer)
            scaler.update()
            plateau.step(loss.item())
            rates.append((f"{norm:.2f}", plateau.get_last_lr()[0]))

    memory(rehearse(play, LIMIT_S))
    assert rates[0] == ("1.00", 0.1)
    assert rates[-1][1] < 0.1  # a loss that does not fall


def test_inference_mode_is_followed_into_its_operators() -> None:
    def play() -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            with torch.inference_mode():
                score = model(torch.zeros(64, INPUTS)).mean()
                assert f"{score:.1f}" == f"{score.item():.1f}"
            assert float(score) == 1.0
            optimizer.zero_grad()
            model(torch.zeros(64, INPUTS)).sum().backward()
            optimizer.step()

    memory(rehearse(play, LIMIT_S))


@pytest.fixture
def own_nets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts import a module ``nets`` that they find themselves; other tests leave one of that name behind."""
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not Path(place, "nets.py").exists()])
    sys.modules.pop("nets", None)
    yield
    sys.modules.pop("nets", None)


#: The benchmark has the others, too: they take longer.
@pytest.mark.usefixtures("own_nets")
@pytest.mark.parametrize("family", all_but_first(["mlp", "cnn", "unet", "lstm", "gpt"], stay=4))
def test_public_scripts_are_followed(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What operators need inside is slow to find out, and not the point.
    monkeypatch.setattr(Scratch, "within", lambda *_: None)
    script, *arguments = PUBLIC[family]
    path = WORKLOADS / "public" / script
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    monkeypatch.syspath_prepend(str(path.parent))
    memory(rehearse(lambda: runpy.run_path(str(path), run_name="__main__"), LIMIT_S))
