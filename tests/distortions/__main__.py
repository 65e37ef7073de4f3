"""`python -m tests.distortions`: every distortion and clean run once, as a table in Markdown."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.distortions.client import Judged, Scene, groups, judged
from tests.distortions.rows import CLEAN, DISTORTIONS


def main() -> None:
    """Takes a minute or two."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = _judged([row.scene for row in (*DISTORTIONS, *CLEAN)], Path(folder))
    print("| distortion | verdict | figure's error | check | remedy | others that failed |")
    print("|---|---|---|---|---|---|")
    for row in DISTORTIONS:
        one = found[row.scene.name]
        own = [check for check in one.failed if check.name.startswith(row.check)]
        others = [check.name for check in one.failed if check not in own]
        remedy = own[0].remedy if own else ""
        print(
            f"| {row.scene.name} | {one.run.verdict.word} | {_error(one, row.figure)} "
            f"| {row.check}: {'failed' if own else 'PASSED'} | {remedy} | {', '.join(others)} |"
        )
    print("\n| clean run | verdict | figure's error | failed |")
    print("|---|---|---|---|")
    for clean in CLEAN:
        one = found[clean.scene.name]
        failed = "; ".join(f"{check.name}: {check.finding}" for check in one.failed)
        name, word = clean.scene.name, one.run.verdict.word
        print(f"| {name} | {word} | {_error(one, clean.figure)} | {failed} |")
    print(f"\n{len(found)} runs in {time.monotonic() - began:.0f} s")


def _judged(scenes: Sequence[Scene], folder: Path) -> dict[str, Judged]:
    return {one.scene.name: one for group in groups(scenes) for one in judged(group, folder)}


def _error(one: Judged, figure: tuple[str, float] | None) -> str:
    if figure is None or (value := one.value_ms(figure[0])) is None:
        return "-"
    return f"{figure[0]} {value:.3g} ms for {figure[1]:.3g} ({value / figure[1] - 1:+.0%})"


if __name__ == "__main__":
    main()
