"""``python -m tarkit``: the program ``tarkit``."""

from __future__ import annotations

if __name__ == "__main__":
    from tarkit.cli.tarkit import main  # type: ignore[import-not-found, unused-ignore]

    raise SystemExit(main())
