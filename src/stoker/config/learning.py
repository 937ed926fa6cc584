"""Settings of learning: the network, where its weights begin, how they are moved, and what is kept of them."""

from dataclasses import dataclass
from typing import Literal

from stoker.config.fields import demand, identity, operational


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which network, and how its arithmetic is done."""

    model: str = identity("resnet18")
    """any name that timm or torchvision knows; timm/NAME or torchvision/NAME where both do"""
    blurpool: bool = identity(False)
    """blur before every convolution that skips pixels (Zhang, "Making convolutional networks shift-invariant again")"""
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
class TuneConfig:
    """What training begins with, where that is not chance, and how carefully it is moved."""

    weights: str = identity("")
    """pretrained (those that timm or torchvision have for the model), a .safetensors or .pth file, or a run"""
    head_rate: float = identity(1.0)
    """learning rate of the last layer, as a multiple of that of the others"""
    layer_decay: float = identity(1.0)
    """what the learning rate is multiplied by for each layer further from the last"""
    freeze_epochs: int = identity(0)
    """epochs at the beginning in which only the last layer learns"""

    def __post_init__(self) -> None:
        demand(self.head_rate > 0, f"head_rate is {self.head_rate}", fix="give a factor above 0, such as 10")
        demand(0 < self.layer_decay <= 1, f"layer_decay is {self.layer_decay}", fix="give a factor up to 1, as 0.75")
        demand(self.freeze_epochs >= 0, f"freeze_epochs is {self.freeze_epochs}", fix="give 0 or more epochs")
        demand(self.freeze_epochs == 0 or self.weights != "", "freeze_epochs keeps all layers but the last as they "
               "are, and there are no weights to keep", fix="give --weights, or --freeze-epochs 0")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How the weights are moved."""

    optimizer: Literal["sgd", "adamw", "lamb", "lars"] = identity("sgd")
    """sgd, adamw, or lamb and lars for very large batches"""
    lr: float = identity(0.1)
    """peak learning rate for 256 samples a step; scaled to the batch, linearly for sgd and lars, by the square root
    for adamw and lamb"""
    peak_lr: float = identity(0.0)
    """peak learning rate as it is, for any batch; 0 takes lr by its rule"""
    schedule: Literal["constant", "linear", "cosine", "onecycle", "step"] = identity("cosine")
    """how the rate falls after the warm-up"""
    warmup_epochs: float = identity(0.0)
    """epochs over which the rate rises to its peak (onecycle: 0 takes 30 % of the run)"""
    drop_epochs: tuple[int, ...] = identity((30, 60, 80))
    """schedule step: the epochs at whose start the rate is multiplied by drop_factor"""
    drop_factor: float = identity(0.1)
    """schedule step: what the rate is multiplied by"""
    momentum: float = identity(0.9)
    """momentum of sgd and lars"""
    nesterov: bool = identity(False)
    """Nesterov's momentum for sgd and lars"""
    weight_decay: float = identity(1e-4)
    """weight decay"""
    norm_decay: bool = identity(True)
    """decay the weights of norms and all biases too"""
    clip: float = identity(0.0)
    """largest norm of all gradients together; 0 does not clip"""
    ema: float = identity(0.0)
    """decay of an average of the weights over steps, which is then evaluated and exported; 0 keeps none"""

    def __post_init__(self) -> None:
        demand(self.lr > 0, f"lr is {self.lr}", fix="give a rate above 0, such as 0.1")
        demand(self.peak_lr >= 0, f"peak_lr is {self.peak_lr}", fix="give a rate above 0, or 0 to scale lr by its rule")
        demand(self.warmup_epochs >= 0, f"warmup_epochs is {self.warmup_epochs}", fix="give 0 or more epochs")
        demand(0 <= self.momentum < 1, f"momentum is {self.momentum}", fix="give a number from 0 to below 1")
        demand(self.weight_decay >= 0, f"weight_decay is {self.weight_decay}", fix="give 0 or more")
        demand(self.drop_factor > 0, f"drop_factor is {self.drop_factor}", fix="give a factor above 0, such as 0.1")
        demand(not (self.nesterov and self.momentum == 0), "nesterov needs momentum, and momentum is 0",
               fix="give --momentum 0.9, or leave --nesterov out")  # fmt: skip
        demand(self.optimizer in ("sgd", "lars") or not self.nesterov, f"{self.optimizer} has no Nesterov's momentum",
               fix="give --optimizer sgd, or leave --nesterov out")  # fmt: skip
        demand(self.clip >= 0, f"clip is {self.clip}", fix="give a norm above 0, such as 1.0, or 0 to clip nothing")
        demand(0 <= self.ema < 1, f"ema is {self.ema}", fix="give a number below 1, such as 0.9999, or 0 for none")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long, in what portions, and when to look up."""

    epochs: int = identity(10)
    """passes over the training set"""
    batch: int | Literal["auto"] = identity(256)
    """samples a step, over all processes together; auto finds the most that fit into memory"""
    stages: str = identity("")
    """stages of training, as 160@4096 x 20, 192@3072 x 20, 224@2048 x 20: resolution @ batch x epochs; after it
    "lr 0.8" fixes the peak rate of a stage"""
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
    plan: bool = operational(True)
    """try the recipe for some seconds first, and say what the run will take"""
    anyway: bool = operational(False)
    """begin a run even if its plan says that something makes it much slower than this hardware could do"""
    on_divergence: Literal["rollback", "stop"] = operational("rollback")
    """when the loss explodes: go back to the last good checkpoint and halve the rate, or stop"""

    def __post_init__(self) -> None:
        demand(self.epochs >= 1, f"epochs is {self.epochs}", fix="give at least 1")
        demand(self.batch == "auto" or self.batch >= 1, f"batch is {self.batch}", fix="give at least 1 sample, or auto")
        demand(self.atoms >= 0, f"atoms is {self.atoms}", fix="give 1 or more, or 0 for one a process")
        demand(self.seed >= 0, f"seed is {self.seed}", fix="give 0 or more")
        demand(self.eval_epochs >= 1, f"eval_epochs is {self.eval_epochs}", fix="give at least 1")
        demand(self.target_accuracy is None or 0 < self.target_accuracy <= 100,
               f"target_accuracy is {self.target_accuracy}", fix="give a percentage, such as 95")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ManyConfig:
    """How many processes train as one."""

    sync_bn: bool = identity(False)
    """batch norm over all atoms of a step together, which then need one process each"""
    compress: Literal["off", "bf16", "fp16", "powersgd"] = identity("off")
    """send gradients as 16-bit numbers, or as PowerSGD's low-rank approximation, for slow links"""


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """What is written down while training, and how often."""

    checkpoint_epochs: int = operational(1)
    """save after every so many epochs"""
    checkpoint_steps: int = operational(0)
    """also save after every so many steps; 0 does not"""
    checkpoint_minutes: float = operational(0.0)
    """also save when so many minutes have passed; 0 takes sqrt(2 x mtbf_hours x cost of a save)"""
    mtbf_hours: float = operational(24.0)
    """hours that go by between two interruptions, as far as you know; spot instances have fewer"""
    keep_last: int = operational(2)
    """newest checkpoints that are kept; the best and the named ones stay too"""
    keep_epochs: int = operational(0)
    """keep the checkpoint of every so many epochs for good, as epoch_N; 0 keeps only the last ones and the best"""
    mirror: str = operational("")
    """folder on a disk that outlives the machine: checkpoints are copied there, and a run begins with what is there"""
    log_steps: int = operational(50)
    """steps between two lines on the screen and in metrics.jsonl"""
    gauge_seconds: float = operational(5.0)
    """seconds between two readings of the gauges (GPU, CPU, disk, network) in gauges.jsonl; 0 reads none"""
    dollars_per_hour: float | None = operational(None)
    """what an hour costs on all machines of this run together, for the report"""
    report: bool = operational(True)
    """show what the network sees and gets wrong, and write report.html when the run ends"""
    track: Literal["off", "tensorboard", "wandb", "mlflow"] = operational("off")
    """also write scores and rates for one of these, below the run's folder; it needs pip install 'stoker[track]'"""

    def __post_init__(self) -> None:
        demand(self.checkpoint_epochs >= 1, f"checkpoint_epochs is {self.checkpoint_epochs}", fix="give at least 1")
        demand(self.checkpoint_steps >= 0, f"checkpoint_steps is {self.checkpoint_steps}", fix="give 0 or more")
        demand(self.checkpoint_minutes >= 0, f"checkpoint_minutes is {self.checkpoint_minutes}", fix="give 0 or more")
        demand(self.mtbf_hours > 0, f"mtbf_hours is {self.mtbf_hours}", fix="give hours above 0, such as 24")
        demand(self.keep_last >= 2, f"keep_last is {self.keep_last}", fix="give at least 2: one may turn out torn")
        demand(self.keep_epochs >= 0, f"keep_epochs is {self.keep_epochs}", fix="give 0 or more")
        demand(self.gauge_seconds == 0 or self.gauge_seconds >= 0.1, f"gauge_seconds is {self.gauge_seconds}",
               fix="give 0.1 or more, or 0 for none")  # fmt: skip
        demand(self.dollars_per_hour is None or self.dollars_per_hour >= 0,
               f"dollars_per_hour is {self.dollars_per_hour}", fix="give 0 or more")  # fmt: skip
        demand(self.log_steps >= 1, f"log_steps is {self.log_steps}", fix="give at least 1")
