"""Two processes that try all they can do together, and save what they got: python pair.py FOLDER [gpu]."""

import copy
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from timm.layers import BatchNormAct2d
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stoker import dist
from stoker.dist import World, gradients, norm
from tests.dist import forked

CPU = torch.device("cpu")
DOWN = (False, False)
FACTS = {0: [DOWN, (True, False), DOWN, DOWN], 1: [(False, True), DOWN, DOWN, DOWN]}
HALVES = {0: slice(0, 4), 1: slice(4, 7)}


def agreed(place: World) -> list[tuple[bool, ...]]:
    store = torch.distributed.distributed_c10d._get_default_store()
    agreement = dist.Agreement(place, count=2)
    heard = []
    for number, facts in enumerate(FACTS[place.rank]):
        if number == 0 and place.rank == 1:
            # The first process must get by its first call without this one.
            store.wait(["told"], datetime.timedelta(seconds=60))
        heard.append(agreement.tell(facts))
        store.set("told", "1")
    return heard


def small() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    network[0].requires_grad_(False)
    return network


def with_gradients(model: Any, place: World, *, step: int = 0, scale: float = 1.0) -> list[torch.Tensor]:
    torch.manual_seed(10 * step + place.rank)
    model.zero_grad()
    device = next(model.parameters()).device
    (model(torch.randn(16, 64).to(device)).square().mean() * scale).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def averaged(place: World) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exact = with_gradients(small(), place)
    for gradient in exact:
        dist.add_up(gradient, place)
    found["mean"] = [gradient / 2 for gradient in exact]
    for compress in ("off", "bf16", "fp16"):
        model = small()
        assert dist.wrapped(model, place, CPU, exact=False, compress=compress) is model
        with_gradients(model, place)
        dist.average(model, place, compress=compress)
        found[compress] = [p.grad for p in model.parameters() if p.grad is not None]
        joined = DistributedDataParallel(small(), broadcast_buffers=False)
        gradients.hooked(joined, compress, None)
        found[f"{compress} hook"] = with_gradients(joined, place)
    model = nn.Linear(1, 1)
    for large in ("large", "large hook"):
        joined = DistributedDataParallel(model) if "hook" in large else model
        if "hook" in large:
            gradients.hooked(joined, "fp16", None)
        model.zero_grad()
        (joined(torch.ones(1, 1)) * 50_000).sum().backward()
        dist.average(joined, place, compress="fp16")
        found[large] = model.weight.grad.clone()
    return found


def powersgd(place: World) -> list[dict[str, Any]]:
    plain, model = small(), small()
    joined = dist.wrapped(model, place, CPU, exact=False, compress="powersgd")
    found = []
    for step in range(gradients.POWERSGD_PLAIN_STEPS + 2):
        alone = with_gradients(plain, place, step=step)
        with dist.quietly(joined, last=False):
            held_back = with_gradients(joined, place, step=step)
        got = with_gradients(joined, place, step=step)
        dist.average(joined, place, compress="powersgd")
        mean = [gradient.clone() for gradient in alone]
        for gradient in mean:
            dist.add_up(gradient, place)
        found.append({"alone": alone, "held_back": held_back, "got": got, "mean": [g / 2 for g in mean]})
    return found


def convolved(momentum: float | None) -> nn.Module:
    torch.manual_seed(0)
    shared = nn.BatchNorm2d(6, momentum=momentum)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3), shared, nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3), BatchNormAct2d(6), shared,
        nn.BatchNorm2d(6, affine=False, momentum=momentum), nn.Flatten(), nn.Linear(6 * 16, 5),
        nn.BatchNorm1d(5, momentum=momentum),
    )  # fmt: skip
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return network.double().to(memory_format=torch.channels_last)


def steps(
    network: nn.Module, samples: slice, parameters: list[Any], device: torch.device
) -> Iterator[list[torch.Tensor]]:
    """Outputs, gradients of pictures and of parameters, and buffers of two steps; then outputs in evaluation."""
    for step in range(2):
        torch.manual_seed(step)
        pictures = torch.randn(7, 3, 8, 8).double()[samples].to(device, copy=True).requires_grad_()
        weights = torch.randn(7, 5)[samples].to(device)
        network.zero_grad()
        outputs = network(pictures.contiguous(memory_format=torch.channels_last))
        (outputs * weights).sum().backward()
        assert pictures.grad is not None
        yield [outputs, pictures.grad, *(p.grad.clone() for p in parameters), *(b.clone() for b in network.buffers())]
    network.eval()
    yield [network(torch.ones(2, 3, 8, 8, device=device).double())]


def normalised(place: World, *, momentum: float | None, device: torch.device = CPU) -> dict[str, Any]:
    whole = convolved(momentum).to(device)
    parts = norm.synchronised(copy.deepcopy(whole), place)
    names = list(whole.state_dict()) == list(parts.state_dict())
    expected = list(steps(whole, slice(None), list(whole.parameters()), device))
    got = list(steps(parts, HALVES[place.rank], list(parts.parameters()), device))
    count = len(list(parts.parameters()))
    for row in got[:2]:
        for gradient in row[2 : 2 + count]:
            dist.add_up(gradient, place)
    for row in expected[:2]:
        row[:2] = [tensor[HALVES[place.rank]] for tensor in row[:2]]
    return {"names": names, "expected": expected, "got": got, "kinds": [type(m).__name__ for m in parts]}


def narrowed(place: World) -> dict[str, Any]:
    """16-bit pictures in the memory layout of a GPU, and some whose mean is far above their spread."""
    torch.manual_seed(0)
    pictures = torch.randn(6, 4, 5, 5).to(memory_format=torch.channels_last)
    joint = norm.synchronised(nn.Sequential(nn.BatchNorm2d(4)), place)
    mine, found = slice(place.rank, None, 2), {}
    for name, shown in {"narrow": pictures.bfloat16(), "far": pictures + 1000}.items():
        found[name] = {"expected": nn.BatchNorm2d(4)(shown)[mine], "got": joint(shown[mine])}
    layout = found["narrow"]["got"].is_contiguous(memory_format=torch.channels_last)
    return {**found, "layout": layout}


def work_on_gpu(rank: int) -> None:
    """Both processes on one GPU, which only gloo allows."""
    torch.distributed.init_process_group("gloo")
    place, device = dist.world(), torch.device("cuda", 0)
    found = {"normalised": normalised(place, momentum=0.1, device=device), "averaged": {}}
    for compress in ("off", "bf16", "fp16", "powersgd"):
        joined = dist.wrapped(small().to(device), place, device, exact=False, compress=compress)
        found["averaged"][compress] = with_gradients(joined, place)
    torch.save(found, Path(sys.argv[1]) / f"{rank}.pt")
    dist.stop(place)


def work(rank: int) -> None:
    torch.set_num_threads(1)
    place = dist.world()
    dist.start(place, CPU)
    found = {
        "agreed": agreed(place),
        "averaged": averaged(place),
        "powersgd": powersgd(place),
        "normalised": normalised(place, momentum=0.1),
        "cumulative": normalised(place, momentum=None),
        "narrowed": narrowed(place),
    }
    torch.save(found, Path(sys.argv[1]) / f"{rank}.pt")
    dist.stop(place)


if __name__ == "__main__":
    children = forked.started(2, work_on_gpu if sys.argv[2:] == ["gpu"] else work, said=Path(sys.argv[1]) / "said")
    codes = [forked.exit_code(child) for child in children]
    if any(codes):
        raise SystemExit("\n".join(path.read_text() for path in sorted(Path(sys.argv[1]).glob("said.*"))))
