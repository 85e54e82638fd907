"""Entry point of ``spark-submit .../recordio_gen.py``; see docs/spark.md."""

from __future__ import annotations

if __name__ == "__main__":
    from tarkit.cli.sparkrecords import main  # type: ignore[import-not-found, unused-ignore]

    raise SystemExit(main())
