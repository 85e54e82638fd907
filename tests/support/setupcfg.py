"""The checkout, and its setup.cfg."""

from __future__ import annotations

import configparser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg", encoding="utf-8")
FOLDERS = dict(line.split(" = ") for line in CONFIG["options"]["package_dir"].strip().splitlines())
