"""What the walk through a tar delivers."""

from __future__ import annotations

from typing import Any

Member = tuple[str, Any, int]
"""One file of an archive: name, content (bytes, or what :mod:`tarkit.formats.tar.large` makes of content that is too
large for memory), byte offset of its header. With a name of "" it is a mark: the
content says of what. b"": an archive ends, and what follows belongs to another sample. LOST_STRETCH: bytes were
lost to damage. Other bytes: the name of a member whose content cannot be delivered."""

LOST_STRETCH = b"\0"
"""Never a member's name."""
