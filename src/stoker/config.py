"""Settings: small frozen dataclasses, one for each part.

Every field is *identity* (it changes the result) or *operational*. Settings come from defaults < recipe < file < flags,
never from the environment. Field names are unique over all parts, so that a flag needs no prefix.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from stoker.errors import Problem


def identity(default: Any) -> Any:
    """A setting that changes the result: a run with another value is another run."""
    return field(default=default, metadata={"identity": True})


def operational(default: Any) -> Any:
    """A setting that changes how the result is reached, and may change between two starts of one run."""
    return field(default=default, metadata={"identity": False})


def part(cls: type) -> Any:
    """A group of settings that one part of the program owns."""
    return field(default_factory=cls)


def demand(fine: bool, what: str, *, fix: str) -> None:
    """Refuse a setting before anything is done with it."""
    if not fine:
        raise Problem(what, fix=fix)


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

    resolution: int = identity(224)
    """pixels a side in training"""
    eval_resolution: int = identity(0)
    """pixels a side in evaluation; 0 takes the training resolution"""
    eval_crop: float = identity(0.875)
    """share of the picture's short side that the centre crop of evaluation keeps"""
    crop_scale: tuple[float, float] = identity((0.08, 1.0))
    """least and largest share of the picture's area that a random crop takes"""
    crop_ratio: tuple[float, float] = identity((0.75, 4 / 3))
    """least and largest width / height of a random crop"""
    flip: float = identity(0.5)
    """probability of a left-right flip in training"""

    def __post_init__(self) -> None:
        demand(self.resolution >= 8, f"resolution is {self.resolution}", fix="give at least 8 pixels")
        demand(self.eval_resolution == 0 or self.eval_resolution >= 8, f"eval_resolution is {self.eval_resolution}",
               fix="give at least 8 pixels, or 0 for the training resolution")  # fmt: skip
        demand(0 < self.eval_crop <= 1, f"eval_crop is {self.eval_crop}", fix="give a share from above 0 to 1")
        demand(0 < self.crop_scale[0] <= self.crop_scale[1] <= 1, f"crop_scale is {self.crop_scale}",
               fix="give two shares, the smaller first, such as 0.08 1.0")  # fmt: skip
        demand(0 < self.crop_ratio[0] <= self.crop_ratio[1], f"crop_ratio is {self.crop_ratio}",
               fix="give two ratios, the smaller first, such as 0.75 1.333")  # fmt: skip
        demand(0 <= self.flip <= 1, f"flip is {self.flip}", fix="give a probability from 0 to 1")


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


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which network, and how its arithmetic is done."""

    model: str = identity("resnet18")
    """any name that timm or torchvision knows; timm/NAME or torchvision/NAME where both do"""
    amp: Literal["off", "bf16", "fp16"] = identity("off")
    """mixed precision"""
    channels_last: bool = identity(True)
    """keep pictures as height x width x channels in memory, which convolutions are fastest with"""
    compile: bool = identity(False)
    """compile the network with torch.compile before training"""
    exact: bool = identity(False)
    """deterministic kernels, no autotuning: a run resumed on a GPU ends with the same bits (on a CPU it always does)"""
    compute_threads: int = identity(0)
    """CPU threads of the network's arithmetic; 0 takes the cores allotted at the first start, and keeps their number"""
    device: Literal["auto", "cpu", "cuda"] = operational("auto")
    """where to train; auto takes a GPU where one works"""

    def __post_init__(self) -> None:
        demand(self.compute_threads >= 0, f"compute_threads is {self.compute_threads}", fix="give 1 or more, or 0")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How the weights are moved."""

    optimizer: Literal["sgd", "adamw"] = identity("sgd")
    """sgd or adamw"""
    lr: float = identity(0.1)
    """peak learning rate for 256 samples a step; scaled to the batch, linearly for sgd, by the square root for adamw"""
    schedule: Literal["constant", "cosine", "onecycle", "step"] = identity("cosine")
    """how the rate falls after the warm-up"""
    warmup_epochs: float = identity(0.0)
    """epochs over which the rate rises to its peak (onecycle: 0 takes 30 % of the run)"""
    drop_epochs: tuple[int, ...] = identity((30, 60, 80))
    """schedule step: the epochs at whose start the rate is multiplied by drop_factor"""
    drop_factor: float = identity(0.1)
    """schedule step: what the rate is multiplied by"""
    momentum: float = identity(0.9)
    """momentum of sgd"""
    nesterov: bool = identity(False)
    """Nesterov's momentum for sgd"""
    weight_decay: float = identity(1e-4)
    """weight decay"""

    def __post_init__(self) -> None:
        demand(self.lr > 0, f"lr is {self.lr}", fix="give a rate above 0, such as 0.1")
        demand(self.warmup_epochs >= 0, f"warmup_epochs is {self.warmup_epochs}", fix="give 0 or more epochs")
        demand(0 <= self.momentum < 1, f"momentum is {self.momentum}", fix="give a number from 0 to below 1")
        demand(self.weight_decay >= 0, f"weight_decay is {self.weight_decay}", fix="give 0 or more")
        demand(self.drop_factor > 0, f"drop_factor is {self.drop_factor}", fix="give a factor above 0, such as 0.1")
        demand(not (self.nesterov and self.momentum == 0), "nesterov needs momentum, and momentum is 0",
               fix="give --momentum 0.9, or leave --nesterov out")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long, in what portions, and when to look up."""

    epochs: int = identity(10)
    """passes over the training set"""
    batch: int = identity(256)
    """samples a step, over all processes together"""
    atoms: int = identity(0)
    """parts of a batch that pass the network (and its batch norm) together; 0 takes one a process at the first start"""
    last_step: Literal["drop", "keep"] = identity("drop")
    """an epoch's last, partial step: drop it, or keep it where every atom gets at least two samples"""
    seed: int = identity(0)
    """the one number that all randomness comes from"""
    eval_epochs: int = operational(1)
    """evaluate after every so many epochs, and after the last"""
    target_accuracy: float | None = operational(None)
    """stop when the held-out top-1 reaches this percentage"""

    def __post_init__(self) -> None:
        demand(self.epochs >= 1, f"epochs is {self.epochs}", fix="give at least 1")
        demand(self.batch >= 1, f"batch is {self.batch}", fix="give at least 1 sample")
        demand(self.atoms >= 0, f"atoms is {self.atoms}", fix="give 1 or more, or 0 for one a process")
        demand(self.seed >= 0, f"seed is {self.seed}", fix="give 0 or more")
        demand(self.eval_epochs >= 1, f"eval_epochs is {self.eval_epochs}", fix="give at least 1")
        demand(self.target_accuracy is None or 0 < self.target_accuracy <= 100,
               f"target_accuracy is {self.target_accuracy}", fix="give a percentage, such as 95")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """What is written down while training, and how often."""

    checkpoint_epochs: int = operational(1)
    """save after every so many epochs"""
    checkpoint_steps: int = operational(0)
    """also save after every so many steps; 0 does not"""
    keep_epochs: int = operational(0)
    """keep the checkpoint of every so many epochs for good, as epoch_N; 0 keeps only the last two and the best"""
    log_steps: int = operational(50)
    """steps between two lines on the screen and in metrics.jsonl"""

    def __post_init__(self) -> None:
        demand(self.checkpoint_epochs >= 1, f"checkpoint_epochs is {self.checkpoint_epochs}", fix="give at least 1")
        demand(self.checkpoint_steps >= 0, f"checkpoint_steps is {self.checkpoint_steps}", fix="give 0 or more")
        demand(self.keep_epochs >= 0, f"keep_epochs is {self.keep_epochs}", fix="give 0 or more")
        demand(self.log_steps >= 1, f"log_steps is {self.log_steps}", fix="give at least 1")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run."""

    data: DataConfig = part(DataConfig)
    image: ImageConfig = part(ImageConfig)
    loader: LoaderConfig = part(LoaderConfig)
    model: ModelConfig = part(ModelConfig)
    optim: OptimConfig = part(OptimConfig)
    train: TrainConfig = part(TrainConfig)
    save: SaveConfig = part(SaveConfig)
