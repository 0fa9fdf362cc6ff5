"""A variational autoencoder on the digits (Kingma and Welling, Auto-Encoding Variational Bayes)."""

from __future__ import annotations

import torch
from data import arguments, batches, digits, save
from torch import nn


class VAE(nn.Module):
    def __init__(self, width: int = 768, latent: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean = nn.Linear(width, latent)
        self.log_variance = nn.Linear(width, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The negative evidence lower bound, per image, in nats."""
        hidden = self.encoder(pixels)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        logits = self.decoder(code)
        likelihood = nn.functional.binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
        return (likelihood + divergence) / len(pixels)


def main() -> None:
    options = arguments(__doc__, iterations=60)
    torch.manual_seed(options.seed)
    images, _ = digits()
    pixels = images.flatten(1)
    model = VAE()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, rows in enumerate(batches(len(pixels), 768, options.iterations), start=1):
        loss = model(pixels[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step} bound {loss.item():.3f}", flush=True)
    save(model, options.save)


if __name__ == "__main__":
    main()
