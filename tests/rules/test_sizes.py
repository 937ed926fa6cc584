import ast
from collections.abc import Iterator
from pathlib import Path

import stoker

MODULE_LINES = 300
FUNCTION_LINES = 45
# The exceptions, each with its own limit and its reason.
MODULES = {"train/loop.py": (200, "the file to read first must be read in one go")}
FUNCTIONS = {"train/loop.py:walk": (120, "the loop is the documentation of training: one page, top to bottom")}


def functions(path: str, text: str) -> Iterator[tuple[str, int, int]]:
    """Name, line and length of every function, from its def to its last line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path}:{node.name}", node.lineno, node.end_lineno - node.lineno + 1


def too_long(path: str, text: str) -> list[str]:
    """The functions of a module that are longer than they may be."""
    return [
        f"{name} (line {line}) has {lines} lines"
        for name, line, lines in functions(path, text)
        if lines > FUNCTIONS.get(name, (FUNCTION_LINES, ""))[0]
    ]


def test_a_module_fits_in_300_lines(sources: dict[str, str]):
    lengths = {path: len(text.splitlines()) for path, text in sources.items()}
    assert {path: n for path, n in lengths.items() if n > MODULES.get(path, (MODULE_LINES, ""))[0]} == {}


def test_a_file_in_another_language_fits_in_300_lines_too():
    found = [path for kind in ("*.h", "*.cpp") for path in Path(stoker.__file__).parent.rglob(kind)]
    assert found and {path.name: n for path in found if (n := len(path.read_text().splitlines())) > MODULE_LINES} == {}


def test_a_function_fits_on_a_screen(sources: dict[str, str]):
    assert [wrong for path, text in sources.items() for wrong in too_long(path, text)] == []


def test_every_exception_is_still_needed(sources: dict[str, str]):
    lengths = {name: lines for path, text in sources.items() for name, _, lines in functions(path, text)}
    assert [name for name in FUNCTIONS if lengths.get(name, 0) <= FUNCTION_LINES] == []
    assert [path for path in MODULES if path not in sources] == []


def test_a_function_that_is_too_long_is_reported():
    body = "    x = 1\n" * FUNCTION_LINES
    assert too_long("some.py", f"def short():\n{body[10:]}") == []
    assert too_long("some.py", f"class C:\n  def long(self):\n{body}") == ["some.py:long (line 2) has 46 lines"]
