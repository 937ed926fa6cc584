import ast
import re
from pathlib import Path

import pytest

NO_NOUN = {"util", "utils", "common", "helper", "helpers", "manager", "managers"}
# Layers of a network and their derivatives are torch's classes: there is no other way to write one.
BASES = {"Exception", "Protocol", "Generic", "ctypes.Structure", "nn.Module", "_BatchNorm", "torch.autograd.Function"}
UNFINISHED = re.compile(r"\b(TODO|FIXME)\b")
PRIVATE = re.compile(r"/root/|/home/|index[-_]url", re.IGNORECASE)


def inherits(path: str, text: str) -> list[str]:
    """The classes of a module that inherit from anything but Exception and Protocol."""
    return [
        f"{path}:{node.lineno} {node.name}({ast.unparse(base)})"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base).split("[")[0].removeprefix("typing.") not in BASES
    ]


def callbacks(path: str, text: str) -> list[str]:
    """The arguments of a module's functions that are callbacks."""
    arguments = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg))
    return [f"{path}:{a.lineno} {a.arg}" for a in arguments if re.fullmatch(r"(\w*_)?callbacks?", a.arg)]


def holding(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    """The lines in which a pattern occurs, of all files but this one, which must name what it looks for."""
    return [
        f"{path}:{number} {line.strip()}"
        for path in files
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_a_module_is_named_by_a_noun_of_its_own(sources: dict[str, str]):
    assert [path for path in sources if NO_NOUN & set(re.split(r"[/_.]", path))] == []


def test_nothing_inherits_but_errors_and_protocols(sources: dict[str, str]):
    assert [wrong for path, text in sources.items() for wrong in inherits(path, text)] == []


def test_no_function_takes_a_callback(sources: dict[str, str]):
    assert [wrong for path, text in sources.items() for wrong in callbacks(path, text)] == []


def test_files_of_lines_which_may_be_very_long_are_not_read_whole(sources: dict[str, str]):
    """stoker.lines reads what is asked for; a bench reads the short runs that it makes."""
    readers = [path for path, text in sources.items() if re.search(r"\bread_lines\(", text)]
    assert sorted(readers) == ["bench/restarts.py", "records.py"]


def test_nothing_is_marked_as_unfinished(tracked: list[Path]):
    assert holding(UNFINISHED, [path for path in tracked if path.suffix != ".md"]) == []


def test_no_file_names_a_home_folder_or_a_package_index(tracked: list[Path]):
    assert holding(PRIVATE, tracked) == []


@pytest.mark.parametrize("base", ["Base", "nn.Linear", "Enum"])
def test_a_base_class_is_reported(base: str):
    assert inherits("some.py", f"class A({base}): ...") == [f"some.py:1 A({base})"]
    assert inherits("some.py", "class A(Exception): ...\nclass B(typing.Protocol[T]): ...\nclass C: ...") == []


def test_a_callback_is_reported():
    assert callbacks("some.py", "def f(x, *, callback): ...\nlambda on_end_callback: 1") == [
        "some.py:1 callback",
        "some.py:2 on_end_callback",
    ]


def test_a_forbidden_line_is_reported(tmp_path: Path):
    (tmp_path / "some.txt").write_text("fine\npip install --extra-index-url x  # TODO\n")
    for pattern in (PRIVATE, UNFINISHED):
        (found,) = holding(pattern, [tmp_path / "some.txt"])
        assert found.startswith(f"{tmp_path}/some.txt:2 ")
