"""What the tests of docs/formats read on its pages."""

from __future__ import annotations

import re


def hex_blocks(page: str) -> list[bytes]:
    """The bytes of each block of hex."""
    found = []
    for block in re.findall(r"```hex\n(.*?)```", page, re.DOTALL):
        data = b""
        for line in block.splitlines():
            offset, _, digits = line.partition("  ")
            assert int(offset, 16) == len(data)
            data += bytes.fromhex(digits)
        found.append(data)
    return found
