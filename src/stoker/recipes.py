"""Named settings, as plain functions. A docstring says what its recipe should reach, where that was published, and what
was seen here; "not run here" where nothing was."""

import difflib
from collections.abc import Callable
from pathlib import Path

from stoker.config import (
    AugmentConfig,
    Config,
    DataConfig,
    ImageConfig,
    ModelConfig,
    OptimConfig,
    SaveConfig,
    TrainConfig,
    TuneConfig,
)
from stoker.errors import Problem


def demo() -> Config:
    """A small network learns to read the built-in pressure gauges on two CPU cores.

    Reaches 95.9 % held-out top-1 in 4 epochs, 84 s on two ARM Neoverse-N1 cores (2026-11-15).
    """
    return Config(
        data=DataConfig(data="dials:4000x96"),
        # A flipped gauge shows another pressure, and a crop that misses the needle shows none.
        image=ImageConfig(resolution=64, crop_scale=(0.85, 1.0), crop_ratio=(0.95, 1.05), flip=0.0, eval_crop=1.0),
        model=ModelConfig(model="timm/test_resnet"),
        optim=OptimConfig(optimizer="adamw", lr=0.006, weight_decay=0.05, schedule="onecycle"),
        train=TrainConfig(epochs=4, batch=32),
        save=SaveConfig(log_steps=25),
    )


def imagenet_rn50() -> Config:
    """ResNet-50 on ImageNet in 60 epochs, 160 to 224 pixels, batches from 4,096 down to 2,048.

    Should reach 78 % top-1: claimed for these settings on 8 A100 (45 minutes, $8.25 on spot instances); FFCV's
    published runs of 56 and 88 epochs on 8 A100 reach 78.0 and 78.4 % (libffcv/ffcv-imagenet, README). Expected on the
    way: FFCV's whole runs of 16, 24, 32 and 40 epochs end at 73.8, 75.6, 76.6 and 77.2 %. Not run here.
    """
    return Config(
        data=DataConfig(data="imagenet"),
        image=ImageConfig(crop_scale=(0.25, 1.0)),
        augment=AugmentConfig(label_smoothing=0.1, mixup=0.2, cutmix=1.0, cutmix_probability=0.3),
        model=ModelConfig(model="timm/resnet50", amp="bf16", compile=True),
        optim=OptimConfig(
            lr=0.1, schedule="onecycle", warmup_epochs=8, weight_decay=1e-4, norm_decay=False, clip=1.0, ema=0.9998
        ),
        # A rate of 0.8 for 2,048 samples; larger batches keep it, since rates above 1 are where such runs diverge.
        train=TrainConfig(stages="160@4096 x 20 lr 0.8, 192@3072 x 20 lr 0.8, 224@2048 x 20 lr 0.8"),
        save=SaveConfig(keep_epochs=5),
    )


def ffcv(model: str, *, batch: int, lr: float, weight_decay: float) -> Config:
    """What FFCV's ImageNet runs of 16 epochs have in common: its rn50 and rn18 configurations, and its training script.

    The rate rises for 2 epochs and falls to 0; 160 pixels for three quarters of the run, then 192; blurred strides,
    label smoothing, no decay of norms, evaluation at 256 pixels with the mirror image.
    """
    return Config(
        data=DataConfig(data="imagenet"),
        image=ImageConfig(crop_scale=(0.08, 1.0), eval_resolution=256, eval_crop=224 / 256, test_flip=True),
        augment=AugmentConfig(label_smoothing=0.1),
        model=ModelConfig(model=model, blurpool=True, amp="fp16"),
        optim=OptimConfig(lr=lr, schedule="linear", warmup_epochs=2, weight_decay=weight_decay, norm_decay=False),
        train=TrainConfig(stages=f"160@{batch} x 12, 192@{batch} x 4"),
    )


def imagenet_rn50_16() -> Config:
    """ResNet-50 on ImageNet in 16 epochs, with FFCV's published settings: batch 4,096, rate 1.7.

    Should reach 73.8 % top-1 (14.9 minutes on 8 A100; libffcv/ffcv-imagenet, README, mirror images in evaluation
    included). FFCV spares only the norms called bn from weight decay, and adds up logits of mirror images where
    probabilities are averaged here. Not run here.
    """
    return ffcv("torchvision/resnet50", batch=4096, lr=1.7 * 256 / 4096, weight_decay=1e-4)


def imagenet_rn18_16() -> Config:
    """ResNet-18 on ImageNet in 16 epochs, with FFCV's published settings: batch 1,024, rate 0.5.

    Should reach 66.9 % top-1 (35 minutes on one A100; libffcv/ffcv-imagenet, README, mirror images in evaluation
    included). FFCV spares only the norms called bn from weight decay, and adds up logits of mirror images where
    probabilities are averaged here. Not run here.
    """
    return ffcv("torchvision/resnet18", batch=1024, lr=0.5 * 256 / 1024, weight_decay=5e-5)


def imagenet_mobilenetv2() -> Config:
    """MobileNetV2 on ImageNet in 150 epochs: batch 256, rate 0.05, cosine.

    Should reach 72.2 % top-1 (72.192 with these settings: d-li14/mobilenetv2.pytorch, README; torchvision's weights of
    300 epochs have 71.878). Not run here.
    """
    return Config(
        data=DataConfig(data="imagenet"),
        model=ModelConfig(model="torchvision/mobilenet_v2", amp="bf16"),
        optim=OptimConfig(lr=0.05, weight_decay=4e-5),
        train=TrainConfig(epochs=150),
        save=SaveConfig(keep_epochs=10),
    )


def places365_rn18() -> Config:
    """ResNet-18 on Places365 in 90 epochs: batch 128, 14,090 steps an epoch; the rate falls by ten every 30.

    The authors' README (CSAILVision/places365) gives no figure for ResNet-18; their ResNet-50, trained with the same
    script, has 55.2 % top-1 and 85.3 % top-5 on the validation set, and a few points less are expected. Not run here.
    """
    return Config(
        data=DataConfig(data="places365"),
        model=ModelConfig(model="torchvision/resnet18"),
        # Their rate is 0.1 for batches of 256.
        optim=OptimConfig(lr=0.1, schedule="step", drop_epochs=(30, 60)),
        # The last, smaller step is kept: 1,803,460 pictures are 14,090 steps of 128.
        train=TrainConfig(epochs=90, batch=128, last_step="keep"),
    )


def finetune() -> Config:
    """A pretrained MobileNetV2 learns new classes: give --data, and --weights and --model for another network.

    The last layer learns alone for one epoch, then all do, the last one ten times as fast. Seen here: 91.1 % top-1 on
    the 372 test photos of a set of 10 kinds of clothing with 1,100 photos to learn from (2026-11-15); the same network
    with its body frozen reaches 84.1 %.
    """
    return Config(
        image=ImageConfig(crop_scale=(0.35, 1.0)),
        augment=AugmentConfig(label_smoothing=0.1),
        model=ModelConfig(model="torchvision/mobilenet_v2"),
        tune=TuneConfig(weights="pretrained", head_rate=10.0, freeze_epochs=1),
        optim=OptimConfig(lr=0.02, schedule="cosine", warmup_epochs=1, nesterov=True, norm_decay=False, ema=0.99),
        train=TrainConfig(epochs=20, batch=32),
        save=SaveConfig(log_steps=10),
    )


def cifar10_rn20() -> Config:
    """ResNet-20 on CIFAR-10 in 182 epochs: batch 128, rate 0.1, which falls by ten at epochs 91 and 136.

    Should reach 91.7 % (91.71 +- 0.23: the dense networks of Renda, Frankle and Carbin, "Comparing rewinding and
    fine-tuning in neural network pruning", 2020). Seen here: 91.58 % at the end, 91.75 % at best, 15.5 minutes on an
    H200 with one interruption (2026-11-15; training pictures that had been through JPEG at quality 95).
    """
    return Config(
        data=DataConfig(data="cifar10"),
        # The whole picture, shifted by up to 4 pixels and mirrored, as He et al. 2015 have it.
        image=ImageConfig(
            resolution=32,
            crop_scale=(1.0, 1.0),
            crop_ratio=(1.0, 1.0),
            eval_crop=1.0,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
        ),
        augment=AugmentConfig(translate=4),
        model=ModelConfig(model="stoker/resnet20"),
        optim=OptimConfig(lr=0.2, schedule="step", drop_epochs=(91, 136), weight_decay=2e-4),
        train=TrainConfig(epochs=182, batch=128),
        save=SaveConfig(checkpoint_epochs=5, log_steps=130),
    )


RECIPES: dict[str, Callable[[], Config]] = {
    "demo": demo,
    "finetune": finetune,
    "cifar10-rn20": cifar10_rn20,
    "imagenet-rn50": imagenet_rn50,
    "imagenet-rn50-16": imagenet_rn50_16,
    "imagenet-rn18-16": imagenet_rn18_16,
    "imagenet-mobilenetv2": imagenet_mobilenetv2,
    "places365-rn18": places365_rn18,
}


def recipe(name: str) -> Config:
    """The settings of a recipe."""
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"recipes are {', '.join(RECIPES)}"
        if Path(name).exists():
            hint = f"data is given with --data {name}"
        raise Problem(f"no recipe is called {name}", fix=hint)
    return RECIPES[name]()
