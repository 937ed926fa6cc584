import ast
from collections.abc import Iterable

from stoker.config import Config
from stoker.settings import listed


def read_names(texts: Iterable[str]) -> set[str]:
    """The attributes that are read. One that is called (`re.compile(...)`) is a method, and never a setting."""
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    reads = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    return {node.attr for node in reads if id(node) not in called}


def test_every_setting_is_read_somewhere(sources: dict[str, str]):
    read = read_names(text for path, text in sources.items() if not path.startswith(("config/", "recipes.py")))
    assert [f"{s.part}.{s.name}" for s in listed(Config()) if s.name not in read] == []


def test_a_call_or_an_assignment_does_not_count_as_reading():
    assert read_names(["re.compile('x')", "self.flip = 1", "f(config.image.crop)"]) == {"image", "crop"}
