"""Files with one flipped bit or value; `python -m tests.cli.flips --flips 2000` flips more."""

from __future__ import annotations

from tests.cli.flips import flipped


def test_a_flipped_file_gives_a_report_or_one_sentence() -> None:
    tally = flipped(60, seed=7)
    assert tally.wrong == []
    assert tally.flips == 60
    assert tally.ended["reports"] > 60
    assert tally.ended["sentences"] > 20
