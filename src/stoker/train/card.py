"""The model card of an export: what a network is, where it comes from, what it reaches, and how to use it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker import lines, records, settings, units
from stoker.config import Config
from stoker.records import MetricRow
from stoker.runs import Run
from stoker.tasks.exported import CARD, CONFIG, ONNX, WEIGHTS, Exported
from stoker.tasks.exported import values_of as read_json

NOT_STATED = "not stated"
PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "safetensors")
# Told by other parts of the card, or nobody's business but the run's: places on the disk of whoever trained.
PRIVATE = ("data", "cache", "mirror", "weights", "model", "mean", "std")
# torchvision's networks with a second head, which is not trained.
TWO_HEADED = ("googlenet", "inception_v3")


def text(said: Exported, config: Config, run: Run | None, *, source: str, is_average: bool, onnx: str | None) -> str:
    """The card as Markdown, with the header that the Hugging Face hub reads."""
    name = run.folder.resolve().name if run else Path(source).stem
    average = ", the average of the weights that training kept" if is_average else ""
    parts = [
        header(said),
        f"# {name}",
        f"{said.model} with {units.count_text(len(said.classes), 'class')}, exported by Stoker from {Path(source).name}"
        f"{average}.",
        "## Use",
        usage(said),
        "## Scores",
        scores(run, source),
        "## Data",
        table(data_facts(config, run, said)),
        "## Training",
        table(training_facts(config, run)),
        "Settings that are not Stoker's defaults:",
        table(changed_settings(config) if run else {}),
        "## Files",
        table(files(said, onnx)),
        "## Limits",
        table(
            dict.fromkeys(("Intended use", "Known weaknesses", "Where the pictures come from", "License"), NOT_STATED)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def header(said: Exported) -> str:
    """Front matter of the card."""
    library = "timm" if said.model.startswith("timm/") and not said.blurpool else "pytorch"
    lines = [f"library_name: {library}", "pipeline_tag: image-classification", "tags:", "- image-classification"]
    return "\n".join(["---", *lines, "- stoker", "# license: yours to choose, such as apache-2.0", "---"])


def usage(said: Exported) -> str:
    """How to load the network without Stoker, and to show it a picture."""
    side = said.resolution
    show = "\n".join(
        [
            "import json\nimport pathlib\n\nimport torch\nfrom PIL import Image\nfrom torchvision import transforms\n",
            f'classes = json.loads(pathlib.Path("{CONFIG}").read_text())["classes"]',
            "view = transforms.Compose([",
            f"    transforms.Resize({round(side / said.crop)}), transforms.CenterCrop({side}), transforms.ToTensor(),",
            f"    transforms.Normalize({list(said.mean)}, {list(said.std)}),",
            "])",
            "with torch.inference_mode():",
            '    logits = network(view(Image.open("picture.jpg").convert("RGB"))[None])',
            "print(classes[int(logits.argmax())])",
        ]
    )
    return (
        f"In this folder:\n\n```python\n{loading(said)}\n```\n\nA picture is resized, its middle ({side} x {side} "
        f"pixels) is cut out and normalised:\n\n```python\n{show}\n```\n\n"
        "With Stoker: `stoker predict . picture.jpg`, and to train on from here: "
        f"`stoker train --model {said.model} --weights {WEIGHTS}`."
    )


def loading(said: Exported) -> str:
    """The lines that make the network: with its own library alone, as long as that has all layers."""
    library, _, name = said.model.partition("/")
    head, imported = f"num_classes={len(said.classes)}", f"import {library}"
    if said.blurpool or library == "stoker":
        imported = "from stoker.tasks import blurpool, networks"
        made = f'networks.create("{said.model}", classes={len(said.classes)})'
        made = f"blurpool.blurred({made})" if said.blurpool else made
    elif library == "timm":
        made = f'timm.create_model("{name}", {head})'
    else:
        extra = ", aux_logits=False, init_weights=True" if name in TWO_HEADED else ""
        made = f'torchvision.models.get_model("{name}", {head}{extra})'
    return (
        f"{imported}\nfrom safetensors.torch import load_file\n\nnetwork = {made}\n"
        f'network.load_state_dict(load_file("{WEIGHTS}"))\nnetwork.eval()'
    )


def scores(run: Run | None, source: str) -> str:
    """What the exported checkpoint reached, on which samples."""
    rows = lines.holding(run.metrics, MetricRow, b'"eval"').rows if run else ()
    step = int(Path(source).name) if Path(source).name.isdigit() else -1
    row = next((row for row in reversed(rows) if row.kind == "eval" and row.step == step), None)
    if row is None or run is None:
        return f"On held-out samples: {NOT_STATED}."
    split = records.read_record(run.record).data.get("held_out", "the held-out part of the data")
    reached = {names(name): f"{value:.4f}" for name, value in row.scores.items()}
    return table({"Samples": f"{row.samples:,} ({split})", "After": units.count_text(row.epoch, "epoch"), **reached})


def names(score: str) -> str:
    """A score as people call it."""
    return {"top1": "Top-1 (%)", "top5": "Top-5 (%)", "loss": "Loss (cross-entropy)"}.get(score, score)


def data_facts(config: Config, run: Run | None, said: Exported) -> dict[str, Any]:
    """What the network has seen."""
    facts = records.read_record(run.record).data if run else {}
    return {
        "Name": Path(config.data.data).name if run else NOT_STATED,
        "Training samples": counted(facts.get("train_samples")),
        "Held-out samples": counted(facts.get("held_out_samples")),
        "Fingerprint": facts.get("fingerprint"),
        "Classes": ", ".join(said.classes[:20]) + (f" ... (all in {CONFIG})" if len(said.classes) > 20 else ""),
    }


def training_facts(config: Config, run: Run | None) -> dict[str, Any]:
    """How long, on what, and with which software."""
    if run is None:
        return {}
    record, machine, code = records.read_record(run.record), read_json(run.machine), read_json(run.code)
    spans = [a.ended_at - a.started_at for a in record.attempts if a.ended_at is not None]
    packages = {name.lower(): version for name, version in code.get("packages", {}).items()}
    gpus = [gpu.get("name") for gpu in machine.get("gpus", ())]
    held = [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)] or ["no GPU"]
    cores = machine.get("cores", {}).get("allotted")
    return {
        "Recipe": None,  # a run keeps what a recipe set, not its name
        "Began with": Path(config.tune.weights).name or "random weights",
        "Epochs": f"{record.result.get('epoch', NOT_STATED)} of {config.train.epochs}",
        "Status": record.status,
        "Hardware": f"{', '.join(held)}, {cores or NOT_STATED} CPU cores" if machine else None,
        "Processes": max((attempt.world for attempt in record.attempts), default=None),
        "Time": f"{units.seconds_text(sum(spans))} in {units.count_text(len(spans), 'start')}" if spans else None,
        "Stoker": " ".join(filter(None, (code.get("version"), code.get("commit")))) or None,
        "Software": ", ".join(f"{name} {packages[name]}" for name in PACKAGES if name in packages) or None,
    }


def changed_settings(config: Config) -> dict[str, Any]:
    """All settings that are not at their defaults and are not told elsewhere in the card."""
    found = (s for s in settings.listed(config) if s.value != s.default and s.name not in PRIVATE)
    return {f"`{setting.name}`": json.dumps(setting.value) for setting in found}


def files(said: Exported, onnx: str | None) -> dict[str, str]:
    """What lies beside the card."""
    found = {f"`{WEIGHTS}`": "weights, as safetensors", f"`{CONFIG}`": "model, classes, and how pictures are shown"}
    if onnx:
        shape = f"batch x 3 x {said.resolution} x {said.resolution}"
        found[f"`{ONNX}`"] = f"`pixels` (normalised floats, {shape}) to `logits` (before softmax); {onnx}"
    return {**found, f"`{CARD}`": "this card"}


def table(rows: Mapping[str, Any]) -> str:
    """Facts as a table of Markdown. What is not known is said to be so."""
    cells = [(name, NOT_STATED if value is None else str(value)) for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *map(line, cells)]) if cells else f"{NOT_STATED}."


def line(cells: Sequence[str]) -> str:
    """A row of a table. A bar or a line break in a name would end its cell."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def counted(number: int | None) -> str | None:
    """A number with its thousands apart."""
    return None if number is None else f"{number:,}"
