"""Settings of the data: where samples come from, what the network sees of them, and how fast they are made ready."""

from dataclasses import dataclass

from stoker.config.fields import demand, identity, operational


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the samples come from."""

    data: str = identity("dials")
    """a pack, a folder of class folders (also split into train/ and val/ or test/), tar, .rec, TFRecord, MNIST,
    CIFAR-10 or CSV files, or the built-in dials[:COUNT[xSIZE]]"""
    holdout: float = identity(0.1)
    """share of the samples kept for evaluation where the data has no split of its own"""
    cache: str = operational("data")
    """folder in which the built-in dataset is made"""
    allow_bad: float = operational(0.01)
    """share of unreadable samples that is tolerated"""

    def __post_init__(self) -> None:
        demand(0 < self.holdout < 1, f"holdout is {self.holdout}", fix="give a share between 0 and 1, such as 0.1")
        demand(0 <= self.allow_bad <= 1, f"allow_bad is {self.allow_bad}", fix="give a share from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """How pictures become network input."""

    resolution: int = identity(0)
    """pixels a side in training; 0 takes what the pretrained weights were made with, or 224"""
    eval_resolution: int = identity(0)
    """pixels a side in evaluation; 0 takes the training resolution (of the last stage)"""
    eval_crop: float = identity(0.875)
    """share of the picture's short side that the centre crop of evaluation keeps"""
    crop_scale: tuple[float, float] = identity((0.08, 1.0))
    """least and largest share of the picture's area that a random crop takes"""
    crop_ratio: tuple[float, float] = identity((0.75, 4 / 3))
    """least and largest width / height of a random crop"""
    flip: float = identity(0.5)
    """probability of a left-right flip in training"""
    test_flip: bool = identity(False)
    """evaluate each picture and its mirror image, and take the mean of both answers"""
    mean: tuple[float, ...] = identity(())
    """mean of the three colours, from 0 to 1; without it that of the pretrained weights, or ImageNet's"""
    std: tuple[float, ...] = identity(())
    """standard deviation of the three colours; without it that of the pretrained weights, or ImageNet's"""

    def __post_init__(self) -> None:
        demand(self.resolution == 0 or self.resolution >= 8, f"resolution is {self.resolution}",
               fix="give at least 8 pixels, or 0 to let the network say")  # fmt: skip
        demand(self.eval_resolution == 0 or self.eval_resolution >= 8, f"eval_resolution is {self.eval_resolution}",
               fix="give at least 8 pixels, or 0 for the training resolution")  # fmt: skip
        demand(0 < self.eval_crop <= 1, f"eval_crop is {self.eval_crop}", fix="give a share from above 0 to 1")
        demand(0 < self.crop_scale[0] <= self.crop_scale[1] <= 1, f"crop_scale is {self.crop_scale}",
               fix="give two shares, the smaller first, such as 0.08 1.0")  # fmt: skip
        demand(0 < self.crop_ratio[0] <= self.crop_ratio[1], f"crop_ratio is {self.crop_ratio}",
               fix="give two ratios, the smaller first, such as 0.75 1.333")  # fmt: skip
        demand(0 <= self.flip <= 1, f"flip is {self.flip}", fix="give a probability from 0 to 1")
        demand(len(self.mean) in (0, 3) and all(0 <= m <= 1 for m in self.mean), f"mean is {self.mean}",
               fix="give three numbers from 0 to 1, such as 0.485 0.456 0.406")  # fmt: skip
        demand(len(self.std) in (0, 3) and all(s > 0 for s in self.std), f"std is {self.std}",
               fix="give three numbers above 0, such as 0.229 0.224 0.225")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """How pictures and labels are altered on the device, after the crop."""

    translate: int = identity(0)
    """shift each picture by up to so many pixels, across and down; what comes in is black"""
    erase: float = identity(0.0)
    """probability that a box of a picture is erased"""
    erase_area: tuple[float, float] = identity((0.02, 1 / 3))
    """least and largest share of the picture that is erased"""
    mixup: float = identity(0.0)
    """MixUp: alpha of the Beta distribution that two pictures are mixed by; 0 mixes none"""
    mixup_probability: float = identity(1.0)
    """probability that an atom that CutMix left alone is mixed"""
    cutmix: float = identity(0.0)
    """CutMix: alpha of the Beta distribution of the box that comes from another picture; 0 cuts none"""
    cutmix_probability: float = identity(0.5)
    """probability that an atom is cut"""
    label_smoothing: float = identity(0.0)
    """share of the label that is spread over all classes"""

    def __post_init__(self) -> None:
        for name in ("erase", "mixup_probability", "cutmix_probability"):
            value = getattr(self, name)
            demand(0 <= value <= 1, f"{name} is {value}", fix="give a probability from 0 to 1")
        demand(self.translate >= 0, f"translate is {self.translate}", fix="give 0 or more pixels")
        demand(0 < self.erase_area[0] <= self.erase_area[1] < 1, f"erase_area is {self.erase_area}",
               fix="give two shares below 1, the smaller first, such as 0.02 0.333")  # fmt: skip
        demand(self.mixup >= 0, f"mixup is {self.mixup}", fix="give an alpha above 0, such as 0.2, or 0 to mix none")
        demand(self.cutmix >= 0, f"cutmix is {self.cutmix}", fix="give an alpha above 0, such as 1.0, or 0 to cut none")
        demand(0 <= self.label_smoothing < 1, f"label_smoothing is {self.label_smoothing}",
               fix="give a share from 0 to below 1, such as 0.1")  # fmt: skip
        demand(not (self.mixup and self.cutmix and self.cutmix_probability == 1),
               "mixup acts on what CutMix leaves alone, and cutmix_probability 1 leaves nothing",
               fix="give a smaller --cutmix-probability, such as 0.5, or --mixup 0")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """How fast samples are made ready."""

    threads: int = operational(0)
    """decode threads; 0 takes the cores really allotted, less one for the training thread"""
    ahead: int = operational(4)
    """batches made ahead of the one in use"""
    window: int = identity(0)
    """shuffle within windows of so many samples, for data larger than memory on slow disks; 0 shuffles all"""

    def __post_init__(self) -> None:
        demand(self.threads >= 0, f"threads is {self.threads}", fix="give 1 or more, or 0 to let Stoker choose")
        demand(self.ahead >= 1, f"ahead is {self.ahead}", fix="give at least 1 batch")
        demand(self.window == 0 or self.window >= 1024, f"window is {self.window}",
               fix="give 1024 samples or more, such as 32768, or 0 to shuffle all")  # fmt: skip
