"""Configs as files and as flat names: reading them, comparing them, and the address that follows from them."""

import difflib
import hashlib
import json
import tomllib
import types
import typing
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from stoker.config import Config
from stoker.config.stages import parsed
from stoker.errors import Problem

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of a config, found by its place."""

    part: str
    name: str
    value: Any
    default: Any
    is_identity: bool


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that two configs do not agree on."""

    name: str
    old: Any
    new: Any


def listed(config: Config) -> Iterator[Setting]:
    """Every setting of a config, part by part."""
    for group in fields(config):
        owner = getattr(config, group.name)
        for item in fields(owner):
            yield Setting(
                part=group.name,
                name=item.name,
                value=getattr(owner, item.name),
                default=item.default,
                is_identity=item.metadata["identity"],
            )


def identity_differences(old: Config, new: Config) -> list[Difference]:
    """The identity settings whose values differ."""
    pairs = zip(listed(old), listed(new), strict=True)
    return [Difference(name=a.name, old=a.value, new=b.value) for a, b in pairs if a.is_identity and a.value != b.value]


def with_operational(old: Config, new: Config) -> Config:
    """The identity settings of one config with the operational ones of another."""
    changed = {setting.name: setting.value for setting in listed(new) if not setting.is_identity}
    return with_values(old, changed)


def address(config: Config) -> str:
    """Eight hex digits that follow from the identity settings that are not at their defaults.

    A setting added later, at its default, leaves old addresses alone.
    """
    changed = {s.name: s.value for s in listed(config) if s.is_identity and s.value != s.default}
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]


def read_file(path: Path, base: Config) -> Config:
    """`base` with the settings of a TOML file ([part] name = value) or of a run's config.json laid over it."""
    try:
        text = path.read_text()
    except OSError as error:
        raise Problem(f"{path} can't be read: {error.strerror}", fix="check the path given with --config") from None
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise Problem(f"{path} can't be parsed: {error}", fix="correct the file at that place") from None
    if not isinstance(values, dict):
        raise Problem(f"{path} holds no settings", fix="write them as [part] and name = value")
    return overlaid(base, values, where=str(path))


def overlaid(config: Config, values: Mapping[str, Any], *, where: str) -> Config:
    """`config` with the given values in the place of its own. Unknown names and wrong types are refused."""
    places = {f"{s.part}.{s.name}": s for s in listed(config)}
    parts = {s.part for s in places.values()}
    changed: dict[str, Any] = {}
    for group, items in values.items():
        if group == "version":
            if items != VERSION:
                fix = "use the Stoker that wrote it: the version is in the run's code.json"
                raise Problem(f"{where} holds version {items} of its settings; this Stoker reads {VERSION}", fix=fix)
            continue
        if group in parts and not isinstance(items, Mapping):
            raise Problem(f"{where}: {group} is a group of settings", fix=f"write [{group}] and below it name = value")
        if group not in parts:
            raise unknown(group, [*parts, *places], where=where)
        for name in items:
            if f"{group}.{name}" not in places:
                raise unknown(f"{group}.{name}", list(places), where=where)
        owner = getattr(config, group)
        kinds = typing.get_type_hints(type(owner))
        converted = {name: as_kind(value, kinds[name], name=f"{group}.{name}") for name, value in items.items()}
        changed[group] = replace(owner, **converted)
    return staged(replace(config, **changed), given={name for items in values.values() for name in named(items)})


def named(items: Any) -> Iterable[str]:
    """The names of a group of settings."""
    return items if isinstance(items, Mapping) else ()


def staged(config: Config, *, given: Container[str]) -> Config:
    """The same settings with the epochs, batch and resolution of their stages. What contradicts them is refused."""
    stages = parsed(config.train.stages)
    if not stages:
        return config
    whole, last = sum(stage.epochs for stage in stages), stages[-1]
    for name, value, said in (
        ("epochs", config.train.epochs, whole),
        ("batch", config.train.batch, last.batch),
        ("resolution", config.image.resolution, last.resolution),
    ):
        if name in given and value != said:
            raise Problem(
                f"{name} is {value}, and the stages ({config.train.stages}) say {said}",
                fix=f"change --stages, or give --stages '' with --{name} {value}",
            )
    train = replace(config.train, epochs=whole, batch=last.batch)
    return replace(config, train=train, image=replace(config.image, resolution=last.resolution))


def differences(old: Config, new: Config) -> dict[str, Any]:
    """The settings, by their bare names, that a new config has and an old one has not."""
    return {b.name: b.value for a, b in zip(listed(old), listed(new), strict=True) if a.value != b.value}


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with some settings, given by their bare names, changed."""
    part_of = {s.name: s.part for s in listed(config)}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name not in part_of:
            raise unknown(name, list(part_of), where="settings")
        nested.setdefault(part_of[name], {})[name] = value
    return overlaid(config, nested, where="settings")


def unknown(name: str, known: list[str], *, where: str) -> Problem:
    """What to say about a setting that does not exist: the nearest one that does."""
    last = {place.rsplit(".", 1)[-1]: place for place in known}
    near = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.rsplit(".", 1)[-1], last, n=1)
    beside = [place for place in known if place.startswith(name.partition(".")[0] + ".")] or known
    hint = f"did you mean {last.get(near[0], near[0])}?" if near else f"known are {', '.join(sorted(beside))}"
    return Problem(f"{where}: there is no setting {name}", fix=hint)


def as_kind(value: Any, kind: Any, *, name: str) -> Any:
    """A value from a file as the type that the field declares."""
    if value is None and type(None) in typing.get_args(kind):
        return None
    options = [k for k in typing.get_args(kind) if k is not type(None)] if is_union(kind) else [kind]
    for option in options:
        origin, members = typing.get_origin(option), typing.get_args(option)
        if origin is tuple and isinstance(value, list | tuple):
            if members[-1] is Ellipsis:
                return tuple(as_kind(v, members[0], name=name) for v in value)
            if len(members) == len(value):
                return tuple(as_kind(v, m, name=name) for v, m in zip(value, members, strict=True))
        elif origin is typing.Literal and value in members:
            return value
        elif option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif isinstance(option, type) and type(value) is option:
            return value
    raise Problem(f"{name} is {value!r}", fix=f"give a value of type {kind_text(kind)}")


def is_union(kind: Any) -> bool:
    """Whether a type is one of several: `int | Literal["auto"]` is of another class than `int | None`."""
    return isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union


def kind_text(kind: Any) -> str:
    """A declared type in words for a message."""
    if is_union(kind):
        return " or ".join(kind_text(k) for k in typing.get_args(kind))
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def as_json(config: Config) -> str:
    """A config as the text of config.json."""
    assert is_dataclass(config)
    return json.dumps({"version": VERSION, **asdict(config)}, indent=1)
