"""Train a U-Net: channels last, a gradient scaler, a Dice score, a rate that falls where the score does not rise."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, random_split

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]

CLASSES, SIDE = 4, 64
Example = dict[str, torch.Tensor]


class Scenes(Dataset[Example]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        mask = torch.randint(0, CLASSES, (SIDE, SIDE))
        return {"image": torch.as_tensor(mask / CLASSES).float().expand(3, -1, -1).contiguous(), "mask": mask.long()}


def dice(predicted: torch.Tensor, target: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    both = 2 * (predicted * target).sum(dim=(-1, -2))
    sets = predicted.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    sets = torch.where(sets == 0, both, sets)
    return ((both + epsilon) / (sets + epsilon)).mean()


def one_hot(mask: torch.Tensor) -> torch.Tensor:
    return functional.one_hot(mask, CLASSES).permute(0, 3, 1, 2).float()


@torch.inference_mode()
def evaluate(net: nn.Module, loader: DataLoader[Example], device: torch.device, amp: bool) -> torch.Tensor:
    net.eval()
    score = torch.zeros((), device=device)
    with torch.autocast(device.type, enabled=amp):
        for batch in loader:
            image = batch["image"].to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            predicted = one_hot(net(image).argmax(dim=1))
            score += dice(predicted[:, 1:], one_hot(batch["mask"].to(device=device, dtype=torch.long))[:, 1:])
    net.train()
    return score / max(len(loader), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", "-e", type=int, default=4)
    parser.add_argument("--batch-size", "-b", type=int, default=4)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nets.UNet().to(memory_format=torch.channels_last)
    net.to(device=device)
    validating, training = 2 * args.batch_size, 5 * args.batch_size
    parts = random_split(Scenes(training + validating), [training, validating], torch.Generator().manual_seed(0))
    settings = {"batch_size": args.batch_size, "pin_memory": device.type == "cuda"}
    train_loader, val_loader = DataLoader(parts[0], shuffle=True, **settings), DataLoader(parts[1], **settings)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-5, weight_decay=1e-8, momentum=0.999, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for batch in train_loader:
            images, masks = batch["image"], batch["mask"]
            assert images.shape[1] == 3, f"expected 3 channels, not {images.shape[1]}"
            images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            masks = masks.to(device=device, dtype=torch.long)
            with torch.autocast(device.type, enabled=args.amp):
                predicted = net(images)
                loss = criterion(predicted, masks)
                loss += 1 - dice(functional.softmax(predicted, dim=1).float(), one_hot(masks))
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        score = evaluate(net, val_loader, device, args.amp)
        scheduler.step(score)
        logging.info("epoch %d: loss %.4f, Dice %s, rate %g", epoch, total, score, optimizer.param_groups[0]["lr"])
        state = net.state_dict()
        state["mask_values"] = list(range(CLASSES))
    print(json.dumps({"loss": total}))


if __name__ == "__main__":
    main()
