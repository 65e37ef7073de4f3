"""A powercap folder as Linux shows it, of files that a test may write."""

from __future__ import annotations

from pathlib import Path

RANGE_UJ = 262_143_328_850


def zone(powercap: Path, folder: str, name: str, energy_uj: int = 0) -> Path:
    """One domain."""
    path = powercap / folder
    path.mkdir()
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    return path
