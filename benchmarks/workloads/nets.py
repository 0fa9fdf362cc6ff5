"""Twelve families of models, each small enough to train on a processor.  Plain PyTorch; every function builds one."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.GELU(), nn.Dropout(0.1), nn.Linear(1536, 100)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 96, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96 * 36, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


class Residual(nn.Module):
    """Two convolutions and the way around them (He et al., Deep Residual Learning)."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """ResNet-18's plan on small images."""
    stages = [Residual(64, 64), Residual(64, 64), Residual(64, 128, 2), Residual(128, 128)]
    stages += [Residual(128, 256, 2), Residual(256, 256), Residual(256, 512, 2), Residual(512, 512)]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def vgg() -> nn.Module:
    """VGG-11's plan, narrower (Simonyan and Zisserman)."""
    layers: list[nn.Module] = []
    before = 3
    for width in (32, 0, 64, 0, 128, 128, 0, 256, 256, 0):
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU(inplace=True)]
        before = width
    head = [nn.Flatten(), nn.Linear(256 * 4, 1024), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(1024, 10)]
    return nn.Sequential(*layers, *head)


class Inverted(nn.Module):
    """Wide in the middle, each channel on its own there (Sandler et al., MobileNetV2)."""

    def __init__(self, before: int, after: int, stride: int = 1, factor: int = 4) -> None:
        super().__init__()
        wide, self.around = before * factor, before == after and stride == 1
        self.body = nn.Sequential(
            nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
            nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.body(x)
        return x + result if self.around else result


def mobilenet() -> nn.Module:
    blocks = [Inverted(16, 24, 2), Inverted(24, 24), Inverted(24, 40, 2), Inverted(40, 40), Inverted(40, 80, 2)]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, 10))


class Dense(nn.Module):
    """Every layer sees all before it (Huang et al., DenseNet)."""

    def __init__(self, before: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(before + index * growth), nn.ReLU(),
                nn.Conv2d(before + index * growth, growth, 3, padding=1, bias=False),
            )
            for index in range(count)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), Dense(24, 12, 6), nn.Conv2d(96, 48, 1), nn.AvgPool2d(2), Dense(48, 12, 6),
        nn.BatchNorm2d(120), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(120, 10),
    )  # fmt: skip


class VAE(nn.Module):
    """Kingma and Welling, Auto-Encoding Variational Bayes; gives its loss."""

    def __init__(self, width: int = 512, latent: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, 784))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.encoder(pixels).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        likelihood = functional.binary_cross_entropy_with_logits(self.decoder(code), pixels, reduction="sum")
        return (likelihood + 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()) / len(pixels)


class Block(nn.Module):
    """Attention that looks back only, and two layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = x + self.layers(self.before_layers(x))
        return result


class GPT(nn.Module):
    def __init__(self, words: int = 1000, length: int = 128, width: int = 128) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(4)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words, bias=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.blocks(self.token(tokens) + self.position.weight[: tokens.shape[1]]))
        return result


class BERT(nn.Module):
    """PyTorch's own encoder layers, with dropout in the attention."""

    def __init__(self, words: int = 2000, width: int = 128) -> None:
        super().__init__()
        self.token = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 512, dropout=0.1, activation="gelu", batch_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(self.token(tokens)))
        return result


class ViT(nn.Module):
    """Images in patches (Dosovitskiy et al., An Image is Worth 16x16 Words)."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.position = nn.Parameter(torch.zeros(1, 64, width))
        layer = nn.TransformerEncoderLayer(width, 3, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.position
        result: torch.Tensor = self.head(self.body(tokens).mean(1))
        return result


class UNet(nn.Module):
    """Down, and up again beside what was on the way (Ronneberger et al., U-Net)."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = self._pair(3, 32), self._pair(32, 64)
        self.up, self.last = nn.ConvTranspose2d(64, 32, 2, 2), self._pair(64, 32)
        self.head = nn.Conv2d(32, 4, 1)

    @staticmethod
    def _pair(before: int, after: int) -> nn.Module:
        both = [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*both)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        high = self.down(images)
        low = self.up(self.deep(functional.max_pool2d(high, 2)))
        result: torch.Tensor = self.head(self.last(torch.cat([high, low], 1)))
        return result


class LSTM(nn.Module):
    def __init__(self, words: int = 2000, width: int = 256) -> None:
        super().__init__()
        self.token, self.body = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(self.token(tokens))[0])
        return result
