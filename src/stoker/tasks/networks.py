"""Networks by name, from timm and torchvision."""

import difflib
import importlib.util

from torch import nn

from stoker.errors import Problem

LIBRARIES = ("timm", "torchvision")


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
    if importlib.util.find_spec(library) is None:
        return []
    if library == "timm":
        import timm

        return timm.list_models()
    import torchvision

    return torchvision.models.list_models(module=torchvision.models)  # type: ignore[attr-defined]


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
    if library == "timm":
        import timm

        return timm.create_model(name, num_classes=classes)
    import torchvision

    # Auxiliary heads return more than logits in training; the field has long done without them.
    extra = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, num_classes=classes, **extra)  # type: ignore[attr-defined]
