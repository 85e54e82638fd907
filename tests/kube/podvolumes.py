"""The volumes of a pod as folders of the host, and what is to be mounted where."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from apiresources import CONFIGMAPS, SECRETS
from apistore import Json, Store
from podenv import data_of, expand, field_value


class MountError(Exception):
    """A volume that cannot be had (yet): the pod waits, with a FailedMount event."""


class Mount(NamedTuple):
    """A folder or file of the host, where it appears, and whether it can be written."""

    source: Path
    target: str
    read_only: bool


def prepare(store: Store, pod: Json, folder: Path) -> dict[str, Path]:
    """Volume name -> folder. Raises MountError. emptyDir is a plain folder: sizeLimit and medium are not enforced."""
    found = {}
    for volume in pod["spec"].get("volumes", []):
        name = volume["name"]
        place = folder / name
        if "hostPath" in volume:
            place = Path(volume["hostPath"]["path"])
            if "Create" in volume["hostPath"].get("type", ""):
                place.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                raise MountError(f'MountVolume.SetUp failed for volume "{name}" : hostPath {place} does not exist')
        else:
            place.mkdir(parents=True, exist_ok=True)
            for path, data, mode in _files(store, pod, volume):
                target = place / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(mode)
        found[name] = place
    return found


def _files(store: Store, pod: Json, volume: Json) -> list[tuple[str, bytes, int]]:
    name = volume["name"]
    if "emptyDir" in volume:
        return []
    if "configMap" in volume or "secret" in volume:
        kind = "configMap" if "configMap" in volume else "secret"
        source = volume[kind]
        return _keys(store, pod, kind, source, source.get("name") or source.get("secretName", ""), name, source)
    if "downwardAPI" in volume:
        return _downward(pod, volume["downwardAPI"])
    if "projected" in volume:
        files = []
        for source in volume["projected"].get("sources", []):
            for kind in ("configMap", "secret"):
                if kind in source:
                    inner = source[kind]
                    files += _keys(store, pod, kind, inner, inner.get("name", ""), name, volume["projected"])
            if "downwardAPI" in source:
                files += _downward(pod, source["downwardAPI"])
        return files
    kinds = ", ".join(sorted(key for key in volume if key != "name"))
    raise MountError(f'MountVolume.SetUp failed for volume "{name}" : the stand-in has no volumes of the kind {kinds}')


def _keys(
    store: Store, pod: Json, kind: str, source: Json, named: str, volume: str, modes: Json
) -> list[tuple[str, bytes, int]]:
    resource = CONFIGMAPS if kind == "configMap" else SECRETS
    data = data_of(store, resource, pod["metadata"]["namespace"], named)
    if data is None:
        if source.get("optional"):
            return []
        raise MountError(f'MountVolume.SetUp failed for volume "{volume}" : {kind.lower()} "{named}" not found')
    mode = int(modes.get("defaultMode", 420))
    if not source.get("items"):
        return [(key, value, mode) for key, value in data.items()]
    files = []
    for item in source["items"]:
        if item["key"] not in data:
            said = f"references non-existent {'config' if kind == 'configMap' else 'secret'} key: {item['key']}"
            raise MountError(f'MountVolume.SetUp failed for volume "{volume}" : {said}')
        files.append((item["path"], data[item["key"]], int(item.get("mode", mode))))
    return files


def _downward(pod: Json, source: Json) -> list[tuple[str, bytes, int]]:
    items = [item for item in source.get("items", []) if "fieldRef" in item]
    return [(item["path"], field_value(pod, item["fieldRef"]["fieldPath"]).encode(), 420) for item in items]


def mounts(container: Json, volumes: dict[str, Path], pod: Json, env: dict[str, str]) -> list[Mount]:
    """What a container wants mounted, outer folders first."""
    kinds = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    found = []
    for mount in container.get("volumeMounts", []):
        source = volumes[mount["name"]]
        sub = mount.get("subPath") or expand(mount.get("subPathExpr", ""), env)
        if sub:
            source = source / sub
            if not source.exists():
                source.mkdir(parents=True)
        fixed = bool({"configMap", "secret", "projected", "downwardAPI"} & set(kinds[mount["name"]]))
        found.append(Mount(source, mount["mountPath"], fixed or bool(mount.get("readOnly"))))
    return sorted(found, key=lambda one: one.target.count("/"))
