"""Networks by name, from timm, torchvision and Stoker itself."""

import contextlib
import difflib
import importlib.util
import sys
from collections.abc import Iterator

from torch import nn

from stoker.errors import Problem
from stoker.tasks.resnet20 import ResNet20

# In the order in which they are asked for a bare name.
LIBRARIES = ("timm", "torchvision", "stoker")


def resolved(name: str) -> str:
    """A network's full name, library/NAME. timm is asked first: it knows more, and the same ones."""
    library, _, rest = name.partition("/")
    if library in LIBRARIES:
        if rest in known(library):
            return name
    else:
        for library in LIBRARIES:
            if name in known(library):
                return f"{library}/{name}"
    raise unknown(name)


def known(library: str) -> list[str]:
    """The names of a library's image classifiers; none where it is not installed."""
    if library == "stoker":
        return ["resnet20"]
    if importlib.util.find_spec(library) is None:
        return []
    if library == "timm":
        # It loads wandb where that is installed, for a table that nothing here writes: half a second of each start.
        with hidden("wandb"):
            import timm
        # A name may say which of several trainings' weights are meant, as resnet50.a1_in1k does.
        return [*timm.list_models(), *timm.list_pretrained()]
    import torchvision

    return torchvision.models.list_models(module=torchvision.models)  # type: ignore[attr-defined]


@contextlib.contextmanager
def hidden(module: str) -> Iterator[None]:
    """Let a module that is not loaded yet seem not to be installed."""
    is_loaded = module in sys.modules
    if not is_loaded:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if not is_loaded:
            del sys.modules[module]


def unknown(name: str) -> Problem:
    """What to say about a network that nobody knows: the nearest names."""
    names = sorted({model for library in LIBRARIES for model in known(library)})
    near = difflib.get_close_matches(name.rpartition("/")[2], names, n=5, cutoff=0.5)
    absent = [library for library in LIBRARIES if importlib.util.find_spec(library) is None]
    what = f"no network is called {name}"
    if absent:
        what += f" ({', '.join(absent)} is not installed, and may know it)"
    return Problem(what, fix=f"nearest names: {', '.join(near)}" if near else "see timm.list_models() for the names")


def create(full_name: str, *, classes: int) -> nn.Module:
    """A network with fresh weights and one output a class. Its weights follow from torch's seed."""
    library, _, name = full_name.partition("/")
    if library == "stoker":
        return ResNet20(classes=classes)
    if library == "timm":
        import timm

        return timm.create_model(name, num_classes=classes)
    import torchvision

    # Auxiliary heads return more than logits in training; the field has long done without them.
    extra = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, num_classes=classes, **extra)  # type: ignore[attr-defined]


def head(network: nn.Module) -> str:
    """The dotted name of the last layer, whose outputs are the classes."""
    modules: dict[str, nn.Module] = dict(network.named_modules())
    # timm says it; of two heads (of distilled networks) the first is meant.
    said: object = (getattr(network, "pretrained_cfg", None) or {}).get("classifier")
    first = str(said[0] if isinstance(said, tuple | list) else said)
    if outputs(modules.get(first)):
        return first
    # Elsewhere it is the layer that was made last. Some networks keep the number of their classes: it must be that.
    classes = getattr(network, "num_classes", None)
    made = [name for name, module in modules.items() if (count := outputs(module)) and classes in (None, count)]
    if not made:
        raise Problem(
            f"{type(network).__name__} has no last layer (linear, or a 1 x 1 convolution) that answers with classes",
            fix="give another --model, such as resnet50",
        )
    return made[-1]


def outputs(module: nn.Module | None) -> int | None:
    """How many numbers a layer answers with for each picture, where it is of a kind that answers with classes."""
    if isinstance(module, nn.Linear):
        return module.out_features
    if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1):
        return module.out_channels
    return None
