"""A bar of tqdm on a terminal, or in a notebook."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any

_DONE = re.compile(r"(?:.*?(\d+) bytes|(\d+))")


def is_notebook() -> bool:
    """Return True in a kernel of Jupyter."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def is_terminal() -> bool:
    """Return True if standard error is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


class ProgressBar:
    """A bar with a text, the part that is done, the rate and the time left.

    Args:
        seconds: time since the work began.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        # A terminal in a container may not know its size.
        known = is_terminal() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
        shape: dict[str, Any] = {"dynamic_ncols": True} if known else {"ncols": 80, "nrows": 24}
        if is_notebook():
            with warnings.catch_warnings():
                # On a notebook without widgets, and on its own age.
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm as bar
            # Notebooks show standard error in red, as an error.
            shape = {"file": sys.stdout, "ncols": 80}
        else:
            from tqdm import tqdm as bar  # type: ignore[assignment]
        self._bar: Any = bar(**{"total": 1.0, "file": sys.stderr, "leave": False, "bar_format": "[{elapsed}]", **shape})
        self._bar.start_t -= seconds

    def show(self, text: str, part: float | None) -> None:
        """Show a text and the completed part of the work: 0.0 to 1.0, or None if unknown.

        The rate is that of the bytes in the text, or else of the number at its beginning.
        """
        from tqdm import tqdm

        bar, rate = self._bar, ""
        if (done := _DONE.match(text)) is not None and (elapsed := bar.format_dict["elapsed"]) > 0:
            unit = "B" if done[1] else ""
            rate = f", {tqdm.format_sizeof(int(done[1] or done[2]) / elapsed)}{unit}/s"
        percent = "" if part is None else "{percentage:3.0f}%|{bar}| "
        left = "<{remaining}" if part else ""
        bar.bar_format = f"{percent}{{desc}} [{{elapsed}}{left}{rate}]"
        bar.n = part or 0.0
        bar.set_description_str(text)

    def clear(self) -> None:
        """Hide the bar until the next refresh."""
        self._bar.clear()

    def refresh(self) -> None:
        """Show the bar again."""
        self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()
