"""Hadoop archives line by line, of every version: what the reader is tested with.

Shares no code with tarkit.
"""

from __future__ import annotations

from pathlib import Path

PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-*_")


def encode(text: str) -> str:
    """Java's URLEncoder."""
    return "".join(chr(b) if b in PLAIN else "+" if b == 32 else f"%{b:02X}" for b in text.encode())


def hash_of(path: str) -> int:
    """Java's String.hashCode, for paths without characters above U+FFFF; the sign is cut off."""
    number = 0
    for character in path:
        number = (number * 31 + ord(character)) % 2**32
    return number % 2**31


def build(folder: Path, files: dict[str, bytes], version: int = 3, split: int = 1000, parts: int = 1) -> None:
    """An archive of these files (paths that begin with a slash), spread over parts, its index in
    ranges of lines.
    """
    folder.mkdir()
    name = encode if version > 1 else str
    props = encode(f"1700000000123 420 {encode('us er')} {encode('grp')}")
    contents = [b""] * parts
    lines: dict[str, str] = {}
    children: dict[str, list[str]] = {"/": []}
    for number, (path, content) in enumerate(files.items()):
        part = number * parts // len(files)
        lines[path] = f"{name(path)} file part-{part} {len(contents[part])} {len(content)} "
        lines[path] += f"{props} " if version > 2 else ""
        contents[part] += content
        below = path
        while below != "/":
            above = below.rpartition("/")[0] or "/"
            known = children.setdefault(above, [])
            if below.rpartition("/")[2] not in known:
                known.append(below.rpartition("/")[2])
            below = above
    for path, names in children.items():
        middle = props if version > 2 else "none"
        lines[path] = f"{name(path)} dir {middle} 0 0 " + "".join(f"{name(each)} " for each in names)
    index = b""
    master = f"{version} \n"
    in_order = sorted((hash_of(path), line) for path, line in lines.items())
    before = 0
    for start in range(0, len(in_order), split):
        begin = len(index)
        some = in_order[start : start + split]
        index += b"".join(f"{line}\n".encode() for _, line in some)
        master += f"{before} {some[-1][0]} {begin} {len(index)} \n"
        before = some[-1][0]
    (folder / "_index").write_bytes(index)
    (folder / "_masterindex").write_text(master, encoding="ascii")
    (folder / "_SUCCESS").touch()
    for number, content in enumerate(contents):
        (folder / f"part-{number}").write_bytes(content)
