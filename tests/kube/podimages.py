"""Images are names here: all are the host, except those that stand for trouble or bring a command of their own."""

from __future__ import annotations

import re

# What runs when a manifest names no command.
ENTRYPOINTS = {
    "pause": ["sleep", "1000000"],
    "busybox": ["sh"],
    "true": ["true"],
    "false": ["false"],
}
# Any of these inside a name: the registry does not have it, or wants a password.
_ABSENT = ("no-such-image", "does-not-exist", "not-there")
_PRIVATE = ("private-image",)


def entrypoint(image: str) -> list[str]:
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    return ENTRYPOINTS.get(name, [])


def pull_error(image: str) -> tuple[str, str] | None:
    """The waiting reason and message of an image that cannot be had: ErrImagePull or InvalidImageName."""
    if re.search(r"[A-Z]", image.partition("@")[0].rpartition(":")[0] or image):
        said = "invalid reference format: repository name must be lowercase"
        message = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {said}'
        return "InvalidImageName", message
    full = image if ":" in image.rpartition("/")[2] else image + ":latest"
    if any(word in image for word in _ABSENT):
        # The wording is that of containerd, from documentation.
        said = f"failed to resolve reference {_quoted(full)}: {full}: not found"
        code = "NotFound"
    elif any(word in image for word in _PRIVATE):
        why = "pull access denied, repository does not exist or may require authorization"
        said = f"failed to resolve reference {_quoted(full)}: {why}"
        code = "Unknown"
    else:
        return None
    return "ErrImagePull", f"rpc error: code = {code} desc = failed to pull and unpack image {_quoted(full)}: {said}"


def _quoted(text: str) -> str:
    return f'"{text}"'
