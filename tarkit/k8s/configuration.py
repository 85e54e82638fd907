"""Settings from their sources: flags, environment, configuration files; and which source set what.

From high to low: the command line; ``KUBETPL_*``; files given by ``--config``, later ones first; the
files of the current folder; the user's own file. Inside a file: the selected profile, the
generator's section, the top. Lists and pairs of all of them are added up, but for the shards."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.settings import FLAG, GENERATORS, LIST, PAIRS, TABLE, WHOLE, Settings
from tarkit.k8s.yamltext import load_yaml, read_bytes

FOLDER_FILES = ("kubetpl.yaml", "kubetpl.yml", ".kubetpl.yaml", ".kubetpl.yml")
"""Read from the current folder if they are there; a later one wins over an earlier one."""

ENV_PREFIX = "KUBETPL_"
# What Kubernetes itself sets for a service called kubetpl is not a setting.
_OF_SERVICE = re.compile(r"KUBETPL_(SERVICE_(HOST|PORT)|PORT_|PORT=[a-z]+://)")
_ENVIRONMENT = "environment"
COMMAND_LINE = "command line"
_PRICES = ("cpu_hour", "gib_hour", "spot_factor")
_REPLACED = ("shards",)
"""Lists of which the highest source counts alone: shards are not meant to be added to those of a file."""

_SECTIONS = ("profiles", "price", *GENERATORS)


@dataclass
class Layer:
    """Settings of one source by name, not yet converted."""

    origin: str
    values: dict[str, Any]


@dataclass
class Configuration:
    """The settings, where each came from (of pairs and lists: each entry's), and the prices."""

    settings: Settings
    origins: dict[str, dict[str, str]]
    price: dict[str, float] = field(default_factory=dict)


def read_configuration(
    generator: str,
    given: Mapping[str, Any],
    files: Sequence[str],
    environ: Mapping[str, str],
    *,
    profile: str | None = None,
    reset: Sequence[str] = (),
    compat_lists: bool = False,
) -> Configuration:
    """What the command line (``given``), the environment and the files, lowest first, ask for together.
    profile: of the files. reset: settings of which only the command line counts. compat_lists: a list on the command
    line replaces that of the files, as in the original."""
    layers: list[Layer] = []
    price: dict[str, float] = {}
    profiles: set[str] = set()
    for name in files:
        found, prices, names = read_file(read_bytes(name), name, generator, profile)
        layers += found
        price.update(prices)
        profiles |= names
    if profile is not None and profile not in profiles:
        known = f"there are {', '.join(sorted(profiles))}" if profiles else "no configuration file has any"
        raise UsageError(f"--profile {profile}: no such profile; {known}")
    layers.append(read_environment(environ))
    layers.append(Layer(COMMAND_LINE, {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}))
    settings, origins = _merged(layers, reset, compat_lists)
    return Configuration(settings, origins, price)


def read_file(
    text: str | bytes, where: str, generator: str, profile: str | None
) -> tuple[list[Layer], dict[str, float], set[str]]:
    """The layers of a configuration file, lowest first; its prices; the names of its profiles."""
    documents = load_yaml(text, where, numbers=False)
    top = documents[0] if documents else None
    if len(documents) > 1 or not isinstance(top, (dict, type(None))):
        raise UsageError(f"{printable(where)}: a configuration is one mapping, such as image: ubuntu:24.04")
    top = top or {}
    profiles = _mapping(top.get("profiles"), f"{where}: profiles")
    prices = {
        name: _price(name, value, f"{where}: price.{name}")
        for name, value in _mapping(top.get("price"), f"{where}: price").items()
    }
    layers = [Layer(where, _known({k: v for k, v in top.items() if k not in _SECTIONS}, where, _SECTIONS))]
    sections = [(f"{where}: {each}", top.get(each), f"{where}, {each}", each == generator) for each in GENERATORS]
    sections += [
        (f"{where}: profiles.{name}", content, f"{where}, profile {name}", name == profile)
        for name, content in profiles.items()
    ]
    for place, content, origin, is_asked in sections:
        # All sections are checked, so that a mistake is found before the section is needed.
        values = _known(_mapping(content, place), place)
        layers += [Layer(origin, values)] if is_asked else []
    return layers, prices, set(profiles)


def read_environment(environ: Mapping[str, str]) -> Layer:
    """The settings of ``KUBETPL_*``. Lists and pairs are JSON or separated by commas."""
    values: dict[str, Any] = {}
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or _OF_SERVICE.match(f"{variable}={environ[variable]}"):
            continue
        # As in most programs, an empty variable is not set.
        if not environ[variable] and variable != ENV_PREFIX:
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        (known,) = _known({name: None}, "the environment", shown=variable)
        text = environ[variable]
        if TABLE[known].kind not in (LIST, PAIRS):
            values[known] = text
        elif text.lstrip()[:1] not in ("[", "{"):
            values[known] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            try:
                values[known] = json.loads(text)
            except ValueError as error:
                raise UsageError(f"{variable}: this is not JSON: {error}") from None
    return Layer(_ENVIRONMENT, values)


def _merged(
    layers: Sequence[Layer], reset: Sequence[str], compat_lists: bool
) -> tuple[Settings, dict[str, dict[str, str]]]:
    """Settings from layers, lowest first, the last being the command line; and where each value came from."""
    values: dict[str, Any] = {}
    origins: dict[str, dict[str, str]] = {}
    ignored = set(_known(dict.fromkeys(reset), "--reset"))
    for layer in layers:
        is_last = layer is layers[-1]
        for name, raw in layer.values.items():
            if raw is None or (name in ignored and not is_last):
                continue
            kind = TABLE[name].kind
            origin = f"{ENV_PREFIX}{name.upper()}" if layer.origin == _ENVIRONMENT else layer.origin
            value = _converted(name, raw, origin)
            if name in _REPLACED or (kind in (LIST, PAIRS) and is_last and compat_lists and value):
                values.pop(name, None)
                origins.pop(name, None)
            if kind == PAIRS:
                values.setdefault(name, {}).update(value)
                origins.setdefault(name, {}).update(dict.fromkeys(value, origin))
            elif kind == LIST:
                known = values.setdefault(name, [])
                new = [each for each in value if each not in known]
                known.extend(new)
                origins.setdefault(name, {}).update(dict.fromkeys(new, origin))
            else:
                values[name] = value
                origins[name] = {"": origin}
    return Settings(**values), origins


def _converted(name: str, raw: Any, origin: str) -> Any:
    """The value of a setting from what a file or a flag gave."""
    setting = TABLE[name]
    if setting.kind == PAIRS:
        return _pairs(name, raw, origin)
    if setting.kind == LIST:
        return [_text(each, name, origin) for each in (raw if isinstance(raw, list) else [raw])]
    if setting.kind == FLAG:
        if str(raw).lower() not in ("true", "1", "yes", "false", "0", "no"):
            raise _wrong(name, origin, "true or false", raw)
        return str(raw).lower() in ("true", "1", "yes")
    text = _text(raw, name, origin)
    if setting.kind == WHOLE:
        if not re.fullmatch("[0-9]{1,10}", text) or int(text) >= 2**31:
            raise _wrong(name, origin, "a whole number, and not negative", text)
        return int(text)
    if setting.choices and text not in setting.choices:
        raise _wrong(name, origin, f"one of {', '.join(setting.choices)}", text)
    return text


def _pairs(name: str, raw: Any, origin: str) -> dict[str, str]:
    if isinstance(raw, dict):
        return {str(key): _text(value, name, origin) for key, value in raw.items()}
    found = {}
    for each in raw if isinstance(raw, (list, tuple)) else [raw]:
        if isinstance(each, dict):
            found.update(_pairs(name, each, origin))
            continue
        key, mark, value = _text(each, name, origin).partition("=")
        if not mark or not key:
            raise _wrong(name, origin, "NAME=VALUE", each)
        found[key] = value
    return found


def _text(value: Any, name: str, origin: str) -> str:
    if isinstance(value, bool):
        # In YAML several words are truth values; which of them was written is not known here.
        raise _wrong(name, origin, "a text, and YAML reads this as true or false; put it in quotes", value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise _wrong(name, origin, "a text", value)


def _wrong(name: str, origin: str, kind: str, got: Any) -> UsageError:
    shown = f"{name.replace('_', '-')} ({TABLE[name].flag})"
    return UsageError(f"{origin}: {shown} is {kind}; got {printable(str(got))!r}")


def _known(values: Mapping[str, Any], where: str, also: Sequence[str] = (), shown: str | None = None) -> dict[str, Any]:
    """The values under the settings' own names; ``config-map`` and ``config_map`` are the same."""
    found = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in TABLE:
            near = difflib.get_close_matches(name, [*TABLE, *also], 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else "; kubetpl job --help lists what there is"
            raise UsageError(f"{printable(where)}: no setting {printable(shown or str(key))!r}{hint}")
        found[name] = value
    return found


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, (dict, type(None))):
        raise UsageError(f"{printable(where)} holds settings by name; got {printable(str(value))!r}")
    return value or {}


def _price(name: str, value: Any, where: str) -> float:
    if name not in _PRICES:
        raise UsageError(f"{printable(where)}: no such price; there are {', '.join(_PRICES)}")
    # Numbers come as they were written; one with so many digits that it would be infinite is refused.
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,20}(\.[0-9]*)?([eE][-+]?[0-9]{1,2})?", value):
        raise UsageError(f"{printable(where)} is a number, and not negative; got {printable(str(value))!r}")
    return float(value)
