"""Settings: small frozen dataclasses, one for each part.

Every field is *identity* (it changes the result) or *operational*. Settings come from defaults < recipe < file < flags,
never from the environment. Field names are unique over all parts, so that a flag needs no prefix.
"""

import dataclasses
import math
from dataclasses import dataclass

from stoker.config.fields import demand, part
from stoker.config.learning import ManyConfig, ModelConfig, OptimConfig, SaveConfig, TrainConfig, TuneConfig
from stoker.config.pictures import AugmentConfig, DataConfig, ImageConfig, LoaderConfig
from stoker.config.stages import Stage, parsed


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run."""

    data: DataConfig = part(DataConfig)
    image: ImageConfig = part(ImageConfig)
    augment: AugmentConfig = part(AugmentConfig)
    loader: LoaderConfig = part(LoaderConfig)
    model: ModelConfig = part(ModelConfig)
    tune: TuneConfig = part(TuneConfig)
    optim: OptimConfig = part(OptimConfig)
    train: TrainConfig = part(TrainConfig)
    many: ManyConfig = part(ManyConfig)
    save: SaveConfig = part(SaveConfig)

    def __post_init__(self) -> None:
        for group in dataclasses.fields(self):
            for name, value in vars(getattr(self, group.name)).items():
                is_number = not isinstance(value, float) or math.isfinite(value)
                demand(is_number, f"{name} is {value}", fix="give a number")
        demand(not (self.model.exact and self.many.compress == "powersgd"),
               "exact promises the same bits after an interruption, and powersgd keeps a memory that is not saved",
               fix="give --compress bf16, or leave --exact out")  # fmt: skip
        demand(not (self.optim.optimizer == "lamb" and self.tune.freeze_epochs),
               "lamb counts the steps of frozen layers too, so they would begin to learn without its warm-up",
               fix="give --optimizer adamw or sgd, or --freeze-epochs 0")  # fmt: skip
        epochs = sum(stage.epochs for stage in parsed(self.train.stages)) or self.train.epochs
        demand(self.optim.warmup_epochs < epochs or self.optim.warmup_epochs == 0,
               f"warmup_epochs is {self.optim.warmup_epochs:g} of {epochs} epochs, so the rate never gets to its peak",
               fix="give fewer, such as a tenth of the epochs")  # fmt: skip

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the run: those asked for, or one. All that is left to Stoker must be fixed by now."""
        batch, resolution = self.train.batch, self.image.resolution
        assert batch != "auto" and resolution > 0
        return parsed(self.train.stages) or (Stage(resolution=resolution, batch=batch, epochs=self.train.epochs),)
