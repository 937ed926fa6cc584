import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

# From top to bottom. A part imports itself and what lies below it; parts of one layer do not import each other.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("usage", "benches", "plans", "reports"),
    ("machine_shown", "verdict_shown", "comparison_shown"),
    ("shown",),
    ("api",),
    ("notebook",),
    ("watch",),
    ("bench", "sweep", "report"),
    ("launch",),
    ("work",),
    ("plan",),
    ("train", "doctor"),
    ("findings",),
    ("tasks",),
    ("data",),
    ("dist",),
    ("machine",),
    ("checkpoint",),
    ("runs",),
    ("locks",),
    ("recipes",),
    ("settings",),
    ("lines",),
    ("config", "records"),
    ("progress",),
    ("units", "errors"),
    ("__init__",),
)
DEPTH = {part: depth for depth, layer in enumerate(LAYERS) for part in layer}
# What only one module (or folder) may import, or reach through an import of something larger.
RESERVED = {
    "torch.distributed": "dist",
    "torch.nn.parallel": "dist",
    "pyspark": "launch/spark",
    "boto3": "launch/aws",
}


def imported(path: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, full name and local name of everything that a module imports, wherever in the module."""
    package = ["stoker", *PurePosixPath(path).parent.parts]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".")[0]
                yield node.lineno, alias.name, local
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, node.module] if node.module else above
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name]), alias.asname or alias.name


def wrong_ways(path: str, text: str) -> list[str]:
    """The imports of a module that go up or sideways."""
    own = path.removesuffix(".py").split("/")[0]
    found = []
    for line, name, _ in imported(path, text):
        part = name.split(".")[1] if name.startswith("stoker.") else own
        if part != own and DEPTH.get(part, -1) <= DEPTH.get(own, -1):
            found.append(f"{path}:{line} imports {name}")
    return found


def reached(path: str, text: str) -> Iterator[tuple[int, str]]:
    """What a module imports, and what it reaches by attributes of that: `torch.distributed` after `import torch`."""
    full = {}
    for line, name, local in imported(path, text):
        yield line, name
        full[local] = name if name.split(".")[0] != local else local
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if head in full:
                yield node.lineno, f"{full[head]}.{rest}"


def trespasses(path: str, text: str) -> list[str]:
    """The places where a module uses a library that is reserved for another."""
    return sorted(
        {
            f"{path}:{line} uses {library}"
            for line, name in reached(path, text)
            for library, owner in RESERVED.items()
            if f"{name}.".startswith(f"{library}.") and path != f"{owner}.py" and not path.startswith(f"{owner}/")
        }
    )


def test_every_part_has_its_layer(sources: dict[str, str]):
    assert {path.removesuffix(".py").split("/")[0] for path in sources} <= set(DEPTH)


def test_imports_go_down_only(sources: dict[str, str]):
    assert [wrong for path, text in sources.items() for wrong in wrong_ways(path, text)] == []


def test_reserved_libraries_stay_with_their_owners(sources: dict[str, str]):
    assert [wrong for path, text in sources.items() for wrong in trespasses(path, text)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("runs.py", "from stoker import api"),
        ("runs.py", "import stoker.train.loop as loop"),
        ("runs.py", "def f():\n    from stoker.work import work"),
        ("runs.py", "if TYPE_CHECKING:\n    from stoker.data.sources import Dataset"),
        ("data/loader.py", "from ..tasks import classify"),
        ("errors.py", "from . import units"),
        ("train/loop.py", "from stoker import doctor"),
        ("machine/gauges.py", "from stoker import part_without_a_layer"),
        ("__init__.py", "from stoker.errors import Problem"),
    ],
)
def test_an_import_that_goes_up_or_sideways_is_reported(path: str, text: str):
    (wrong,) = wrong_ways(path, text)
    assert wrong.startswith(f"{path}:{len(text.splitlines())} imports stoker.")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("train/loop.py", "from stoker.train import step\nfrom . import state\nfrom stoker import tasks, errors"),
        ("api.py", "import json, stoker.work\nfrom stoker.train import trained"),
        ("__main__.py", "from stoker.cli import main"),
    ],
)
def test_an_import_that_goes_down_is_fine(path: str, text: str):
    assert wrong_ways(path, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed",
        "from torch import distributed as many",
        "from torch.nn.parallel import DistributedDataParallel",
        "import torch\ntorch.distributed.barrier()",
        "import torch as t\nt.distributed.barrier()",
        "from torch import nn\nnn.parallel.DataParallel(1)",
        "import boto3",
        "from pyspark.sql import SparkSession",
    ],
)
def test_a_reserved_library_elsewhere_is_reported(text: str):
    assert len(trespasses("train/step.py", text)) == 1


def test_a_reserved_library_at_its_owner_is_fine():
    assert trespasses("dist.py", "import torch.distributed\ntorch.distributed.barrier()") == []
    assert trespasses("launch/aws.py", "import boto3") == []
    assert trespasses("train/step.py", "import torch\ntorch.nn.Linear(1, 1)\ntorch.distributions.Normal(0, 1)") == []
