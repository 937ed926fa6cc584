"""ResNet-20 for pictures of 32 x 32 pixels, which neither timm nor torchvision has."""

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (16, 32, 64)
BLOCKS_A_STAGE = 3


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, planes_in: int, planes: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(planes_in, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut.append(nn.Conv2d(planes_in, planes, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(planes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What comes in, and what two convolutions make of it."""
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet20(nn.Module):
    """Three stages of three blocks (He et al., "Deep residual learning", 2015, section 4.2): 272,474 weights.

    As in Renda et al., "Comparing rewinding and fine-tuning" (2020), and Frankle's open_lth: the shortcuts of the two
    blocks that halve the picture are 1 x 1 convolutions with a batch norm. Names are those of open_lth, so that its
    state dicts can be read. Convolutions and the last layer begin with Kaiming's normal distribution, as there; batch
    norms begin at 1 and 0, as in Renda's code (open_lth draws their weights from 0 to 1).
    """

    def __init__(self, *, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(WIDTHS[0])
        self.blocks = nn.Sequential()
        before = WIDTHS[0]
        for width in WIDTHS:
            for _ in range(BLOCKS_A_STAGE):
                self.blocks.append(Block(before, width, stride=1 if width == before else 2))
                before = width
        self.fc = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One number a class for each picture, of any size that is a multiple of 4 or not."""
        out = self.blocks(functional.relu(self.bn(self.conv(x))))
        answer: torch.Tensor = self.fc(out.mean(dim=(2, 3)))
        return answer
