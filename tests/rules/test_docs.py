import os
import re
import subprocess
import sys
import tempfile
import textwrap
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Lists of findings and of measurements: their commands need hours, other machines or private data.
NOT_RUN = {"log.md", "benchmarks.md"}
DOCS = [ROOT / "README.md", *sorted(path for path in ROOT.glob("docs/*.md") if path.name not in NOT_RUN)]
BLOCK_SECONDS = 600
FENCED = re.compile(r"^ *(?P<fence>`{3,})(?P<kind>[^\n`]*)\n(?P<text>.*?)(?:^ *(?P=fence)`* *$|\Z)", re.M | re.S)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|^ *\[[^\]]+\]:\s*<?([^\s>]+)|(?:src|href)=\"([^\"]+)\"", re.M)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block that promises to run as written."""

    kind: str
    line: int
    text: str


def blocks(markdown: str) -> Iterator[Block]:
    """The python and console blocks of a page, in order."""
    for found in FENCED.finditer(markdown):
        kind = found["kind"].strip().split(" ")[0]
        if kind in ("python", "console"):
            line = markdown.count("\n", 0, found.start()) + 1
            yield Block(kind=kind, line=line, text=textwrap.dedent(found["text"]))


def commands(text: str) -> str:
    """The lines of a console block behind `$ `; one that ends with a backslash goes on in the next."""
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.M)
    assert found, f"a console block without any line that starts with '$ ':\n{text}"
    return "\n".join(["set -e", *found])


def run(block: Block, folder: Path) -> None:
    """Run a block in a folder, and fail as it fails."""
    words = [sys.executable, "-c", block.text] if block.kind == "python" else ["bash", "-c", commands(block.text)]
    # Not resolved: the link to the interpreter, not the interpreter itself, lies beside the `stoker` command.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryFile("w+") as out:
        code = subprocess.run(
            words, cwd=folder, env=os.environ | {"PATH": path}, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, timeout=BLOCK_SECONDS, check=False,
        ).returncode  # fmt: skip
        out.seek(0)
        assert code == 0, f"the block at line {block.line} exits {code}:\n{block.text}\n{out.read()[-4000:]}"


def run_page(markdown: str, folder: Path) -> None:
    """Run the blocks of a page, one after the other, in one folder."""
    for block in blocks(markdown):
        run(block, folder)


def broken_links(page: Path) -> list[str]:
    """The links of a page that point to no file."""
    prose = re.sub(r"`[^`\n]+`", "", FENCED.sub("", page.read_text()))
    targets = [urllib.parse.unquote(next(filter(None, found)).split("#")[0]) for found in LINK.findall(prose)]
    relative = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    return [f"{page}: {t}" for t in relative if not (ROOT / t[1:] if t[0] == "/" else page.parent / t).exists()]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_as_written(page: Path, tmp_path: Path):
    run_page(page.read_text(), tmp_path)


def test_every_relative_link_points_to_something(tracked: list[Path]):
    assert [wrong for path in tracked if path.suffix == ".md" for wrong in broken_links(path)] == []


@pytest.mark.parametrize(
    "page",
    [
        "```python\nassert 1 == 2\n```",
        "```console\n$ false\n$ true\n```",
        "```console\n$ true\n```\nand then\n```python\nimport no_such_module\n```",
        "1. In a list:\n   ```console\n   $ no-such-command\n   ```",
        "```console\nforgotten the dollar\n```",
        "```python\nraise SystemExit(3)",
    ],
)
def test_a_block_that_fails_fails_its_page(page: str, tmp_path: Path):
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)


def test_blocks_run_in_order_in_one_folder_and_others_do_not_run(tmp_path: Path):
    run_page(
        "```console\n$ echo one \\\n    two > a.txt\nsome output\n$ command -v stoker > b.txt\n```\n"
        "```text\n$ touch c.txt\n```\n"
        "```python\nfrom pathlib import Path\nPath('d.txt').write_text(Path('a.txt').read_text() * 2)\n```\n",
        tmp_path,
    )
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    stoker = str(Path(sys.executable).parent / "stoker")
    assert texts == {"a.txt": "one two\n", "b.txt": f"{stoker}\n", "d.txt": "one two\none two\n"}


def test_a_broken_link_is_reported(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "[a](gone.md#part) [b](page.md) [c](https://example.org) [d](#here) `[e](code.md)`\n"
        '<img src="gone.png">\n[f]: gone.txt\n```text\n[g](fenced.md)\n```\n'
    )
    assert broken_links(page) == [f"{page}: gone.md", f"{page}: gone.png", f"{page}: gone.txt"]
