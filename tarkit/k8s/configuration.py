"""Settings from their sources: flags and configuration files.

The precedence, highest first: the command line; files given by ``--config``, later ones first; the
files of the current folder; the user's own file. Lists and pairs of all sources are merged, except
for the shards.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.settings import FLAG, LIST, PAIRS, TABLE, WHOLE, Settings
from tarkit.k8s.yamltext import load_yaml, read_bytes

FOLDER_FILES = ("kubetpl.yaml", "kubetpl.yml", ".kubetpl.yaml", ".kubetpl.yml")
"""Files that are read from the current folder if they exist; a later one overrides an earlier one.
"""

_REPLACED = ("shards",)
"""Lists of which only the source of the highest precedence counts: the shards of a file are never
merged with others.
"""


def read_settings(given: Mapping[str, Any], files: Sequence[str]) -> Settings:
    """Return the settings of the command line (``given``) and of the files, merged.

    Args:
        files: configuration files, the lowest precedence first.
    """
    layers = [(name, read_file(read_bytes(name), name)) for name in files]
    values: dict[str, Any] = {}
    for origin, layer in (*layers, ("command line", given)):
        for name, raw in layer.items():
            if raw is None:
                continue
            value = _converted(name, raw, origin)
            kind = TABLE[name].kind
            if kind == PAIRS:
                values[name] = {**values.get(name, {}), **value}
            elif kind == LIST and name not in _REPLACED:
                values[name] = list(dict.fromkeys((*values.get(name, ()), *value)))
            else:
                values[name] = value
    return Settings(**values)


def read_file(text: bytes, where: str) -> dict[str, Any]:
    """Parse a configuration file, and return its settings."""
    documents = load_yaml(text, where, numbers=False)
    top = documents[0] if documents else None
    if len(documents) > 1 or not isinstance(top, (dict, type(None))):
        raise UsageError(f"{printable(where)}: a configuration is one mapping, such as image: ubuntu:24.04")
    return {_known(str(key), where): value for key, value in (top or {}).items()}


def _converted(name: str, raw: Any, origin: str) -> Any:
    """Convert the value that a file or a flag gave for a setting."""
    setting = TABLE[name]
    if setting.kind == PAIRS:
        return _pairs(name, raw, origin)
    if setting.kind == LIST:
        return [_text(each, name, origin) for each in (raw if isinstance(raw, (list, tuple)) else [raw])]
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
    return UsageError(f"{printable(origin)}: {shown} is {kind}; got {printable(str(got))!r}")


def _known(key: str, where: str) -> str:
    """Return the name of a setting; ``config-map`` and ``config_map`` are equal."""
    name = key.replace("-", "_")
    if name not in TABLE:
        near = difflib.get_close_matches(name, TABLE, 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else "; kubetpl job --help lists what there is"
        raise UsageError(f"{printable(where)}: no setting {printable(key)!r}{hint}")
    return name
