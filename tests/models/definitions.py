"""The networks whose graphs are committed beside this file, written in plain PyTorch.

Only `regenerate.py` imports this module; nothing else in the project needs torch. Each network
follows its paper: ResNet-50 v1.5 (stride in the 3x3 convolution), MobileNetV2 at width 1.0, and
MiniLM-L6, a BERT encoder with mean pooling whose parameters carry the names of the published
all-MiniLM-L6-v2 safetensors file. This is not a training set-up: weights are never used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["MiniLM", "MobileNetV2", "MultilayerPerceptron", "ResNet50"]


class MultilayerPerceptron(nn.Module):
    """Three dense layers with ReLU: f32[batch, 784] -> f32[batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(784, 512)
        self.hidden2 = nn.Linear(512, 256)
        self.logits = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.hidden1(x))
        x = torch.relu(self.hidden2(x))
        return self.logits(x)


class _Bottleneck(nn.Module):
    """1x1 reduce, 3x3 (carries the stride), 1x1 expand, added to the shortcut."""

    def __init__(self, input_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        output_channels = 4 * channels
        self.conv1 = nn.Conv2d(input_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, output_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(output_channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or input_channels != output_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(input_channels, output_channels, 1, stride, bias=False),
                nn.BatchNorm2d(output_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNet50(nn.Module):
    """ResNet-50 v1.5: f32[batch, 3, 224, 224] -> f32[batch, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(64, 64, 3, 1)
        self.layer2 = _stage(256, 128, 4, 2)
        self.layer3 = _stage(512, 256, 6, 2)
        self.layer4 = _stage(1024, 512, 3, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def _stage(input_channels: int, channels: int, block_count: int, stride: int) -> nn.Sequential:
    first = _Bottleneck(input_channels, channels, stride)
    rest = [_Bottleneck(4 * channels, channels, 1) for _ in range(block_count - 1)]
    return nn.Sequential(first, *rest)


class _InvertedResidual(nn.Module):
    """1x1 expand, 3x3 depthwise, 1x1 project; added to the input when shapes allow."""

    def __init__(self, input_channels: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.adds_input = stride == 1 and input_channels == channels
        hidden = input_channels * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers += _convolution(input_channels, hidden, 1)
        layers += _convolution(hidden, hidden, 3, stride, hidden)
        layers += [nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.adds_input else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2, width 1.0: f32[batch, 3, 224, 224] -> f32[batch, 1000]."""

    # (expansion, channels, block count, stride of the first block), table 2 of the paper
    _STAGES = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers = _convolution(3, 32, 3, 2)
        channels = 32
        for expansion, stage_channels, block_count, stride in self._STAGES:
            for index in range(block_count):
                block_stride = stride if index == 0 else 1
                layers.append(_InvertedResidual(channels, stage_channels, block_stride, expansion))
                channels = stage_channels
        layers += _convolution(channels, 1280, 1)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def _convolution(
    input_channels: int, channels: int, size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    return [
        nn.Conv2d(input_channels, channels, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(),
    ]


class _Embeddings(nn.Module):
    def __init__(self, vocabulary_count: int, position_count: int, width: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary_count, width)
        self.position_embeddings = nn.Embedding(position_count, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x + self.position_embeddings(positions))


class _SelfAttention(nn.Module):
    def __init__(self, width: int, head_count: int) -> None:
        super().__init__()
        self.head_count = head_count
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = (batch, length, self.head_count, width // self.head_count)
        query = self.query(x).view(heads).transpose(1, 2)
        key = self.key(x).view(heads).transpose(1, 2)
        value = self.value(x).view(heads).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return y.transpose(1, 2).reshape(batch, length, width)


class _AddAndNormalize(nn.Module):
    """Dense layer, residual add, layer norm: the tail of both halves of a BERT layer."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(input_width, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class _Layer(nn.Module):
    def __init__(self, width: int, hidden_width: int, head_count: int) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {
                "self": _SelfAttention(width, head_count),
                "output": _AddAndNormalize(width, width),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, hidden_width)})
        self.output = _AddAndNormalize(hidden_width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, bias), x)
        return self.output(nn.functional.gelu(self.intermediate["dense"](x)), x)


class MiniLM(nn.Module):
    """Sentence embeddings: three i64[batch, sequence] -> f32[batch, 384] of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = _Embeddings(30522, 512, 384)
        layers = [_Layer(384, 1536, 12) for _ in range(6)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids)
        mask = attention_mask[:, None, None, :].to(x.dtype)
        bias = (1.0 - mask) * torch.finfo(x.dtype).min
        for layer in self.encoder["layer"]:
            x = layer(x, bias)
        weight = attention_mask[:, :, None].to(x.dtype)
        mean = (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=1)
