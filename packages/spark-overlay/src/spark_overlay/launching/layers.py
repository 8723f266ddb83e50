"""The layers of one launch: shipped configs, files, the site and --set, merged, with where each value came from.

Owns reading and order: what a config extends, then the config, then the site, then --set; a later value replaces an
earlier one key by key.  A layer that is wrong is told by its own name before anything is merged.
"""

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ofl.files import FileTooLongError, read_plain
from pydantic import BaseModel

from spark_overlay.launching.model import LaunchConfig, Parts, Site
from spark_overlay.launching.problems import ConfigError, Problem, check
from spark_overlay.launching.sections import layer_problems

SET = "--set"
FILE_BYTES_MAX = 1 << 20
EXTENDS_MAX = 16
FREE = ("engine", "speculative", "environment", "remote", "tables")
"""Sections whose keys are values of any kind."""


@dataclass(frozen=True)
class Layer:
    """One file or the options --set.  source: its name in sentences.  raw: as read.  path: None where there is none.
    text: of a config's file.
    """

    source: str
    raw: dict[str, Any]
    path: Path | None = None
    text: str = ""

    @property
    def place(self) -> str:
        """Tells one file from another, however it was named."""
        return str(self.path.resolve()) if self.path is not None else self.source


@dataclass(frozen=True)
class Launch:
    """What is to be launched.

    name: of the config.  parts: of all layers together.  origins: the layer of each value, by dotted field.
    files: those that were read, for a container's mounts.
    """

    name: str
    config: LaunchConfig
    site: Site
    parts: Parts
    origins: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    def problem(self, sentence: str, dotted: str) -> Problem:
        """What is wrong with a field, in the file that set it; where none did, the site is the place."""
        return Problem(sentence, self.origins.get(dotted, self.origins.get("", "the site")), dotted)


def shipped() -> dict[str, str]:
    """The shipped configs' texts by name, in their order."""
    folder = resources.files("spark_overlay.launching") / "shipped"
    found = {one.name.removesuffix(".toml"): one for one in folder.iterdir() if one.name.endswith(".toml")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def read_launch(config: str, site: Path | None, settings: Sequence[str]) -> Launch:
    """Read and merge.  config: a shipped name or a file.  settings: NAME=VALUE each.

    Raises ConfigError with everything that is wrong.
    """
    chain = read_config(config)
    site_layers = [layer for layer in (_site(site), _set(settings)) if layer is not None]
    problems = [
        *(problem for layer in chain for problem in layer_problems(layer.raw, LaunchConfig, layer.source)),
        *(problem for layer in site_layers for problem in layer_problems(layer.raw, Site, layer.source)),
    ]
    check(problems)
    origins: dict[str, str] = {"": str(site) if site is not None else "the site"}
    merged_config = merged(chain, origins)
    merged_site = merged(site_layers, origins)
    parts = [Layer(layer.source, _only(layer.raw, Parts)) for layer in [*chain, *site_layers]]
    if site is not None and not any("remote" in layer.raw for layer in chain):
        # How a site drafts remotely is for the configs that do: at the same site A-local stays stock vLLM.
        parts[len(chain)].raw.pop("remote", None)
    files = [layer.path for layer in chain if layer.path is not None]
    return Launch(
        name=Path(config).stem if _is_file(config) else config,
        config=LaunchConfig.model_validate(merged_config),
        site=Site.model_validate(merged_site),
        parts=Parts.model_validate(merged(parts, {})),
        origins=origins,
        files=(*files, *([site] if site is not None else [])),
    )


def merged(layers: Iterable[Layer], origins: dict[str, str]) -> dict[str, Any]:
    """The layers' values, a later one's in place of an earlier one's; origins is filled."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.raw.items():
            if isinstance(value, dict):
                result[name] = {**result.get(name, {}), **value}
                origins.update({f"{name}.{key}": layer.source for key in value})
            else:
                result[name] = value
            origins[name] = layer.source
    return result


def _only(raw: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name in model.model_fields}


def read_config(config: str, asked: str = "--config") -> list[Layer]:
    """The config and all that it extends, the first of them first.  asked: how it was asked for.

    Raises ConfigError where there is none.
    """
    layers: list[Layer] = []
    name, asked_by, folder = config, Problem("", asked), Path()
    while True:
        layer = _config(name, folder, asked_by)
        if layer.place in [one.place for one in layers]:
            way = " -> ".join([*(one.source for one in layers), layer.source])
            raise ConfigError([Problem(f"it goes in a circle: {way}", layers[-1].source, "extends")])
        if len(layers) == EXTENDS_MAX:
            raise ConfigError(
                [Problem(f"more than {EXTENDS_MAX} configs extend each other", layer.source, "extends")]
            )
        layers.append(layer)
        before = layer.raw.get("extends")
        if not isinstance(before, str):  # absent, or told with the layer's other problems
            return layers[::-1]
        name, asked_by = before, Problem("", layer.source, "extends")
        folder = layer.path.parent if layer.path is not None else Path()


def _is_file(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


def _config(name: str, folder: Path, asked_by: Problem) -> Layer:
    if _is_file(name):
        path = folder / name
        text = _text(path)
        return Layer(str(path), _parsed(text, str(path)), path, text)
    texts = shipped()
    if name not in texts:
        by_letters = {one.lower(): one for one in texts}
        near = [by_letters[one] for one in difflib.get_close_matches(name.lower(), by_letters, n=1)]
        known = f"did you mean {near[0]}?" if near else f"there are {', '.join(texts)}"
        raise ConfigError(
            [Problem(f"no config {name!r} is shipped; {known}", asked_by.source, asked_by.field)]
        )
    return Layer(f"{name}.toml", _parsed(texts[name], f"{name}.toml"), text=texts[name])


def _site(path: Path | None) -> Layer | None:
    return None if path is None else Layer(str(path), _parsed(_text(path), str(path)))


def _text(path: Path) -> str:
    try:
        return read_plain(path, FILE_BYTES_MAX).decode("utf-8")
    except FileTooLongError:
        raise ConfigError(
            [Problem(f"more than {FILE_BYTES_MAX} bytes, which no config is", str(path))]
        ) from None
    except OSError as error:
        raise ConfigError([Problem(f"it cannot be read: {error.strerror}", str(path))]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem("it is not UTF-8 text", str(path))]) from None


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([Problem(f"it is not TOML: {error}", source)]) from None


def _set(settings: Sequence[str]) -> Layer | None:
    """The options --set as a layer of the site."""
    raw: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        section, _, key = name.partition(".")
        if not equals or not section or (key == "" and "." in name):
            raise ConfigError([Problem(f"{setting!r} is given where NAME=VALUE is needed", SET)])
        if key:
            inside = raw.setdefault(section, {})
            if not isinstance(inside, dict):
                raise ConfigError([Problem("it is given as a whole and in part", SET, section)])
            inside[key] = _value(value) if section in FREE else value
        else:
            raw[name] = value
    return Layer(SET, raw) if raw else None


def _value(text: str) -> Any:
    """As TOML has it, else as text: 1, true and "x" mean what they mean in a file."""
    try:
        value = tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return (
        value if isinstance(value, (bool, int, float, str, list, dict)) else text
    )  # a date is one to TOML alone


def described(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and description of each shipped config."""
    for name, text in texts.items():
        yield name, LaunchConfig.model_validate(tomllib.loads(text)).description
