"""Every distortion is INVALID by its own check with its own remedy; no clean load is INVALID.

Loads go on together in groups, each against a server of its own, as the real client sends them.
Checks of the client itself, and of what other programs left the server, may fail beside: a busy
machine does that, and says so, first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.distortions.client import Judged, Scene, groups, judged
from tests.distortions.rows import CLEAN, DISTORTIONS, Clean, Distortion
from tgi_bench.analysis.rules import Check
from tgi_bench.kinds.load.client_rules import client_checks

OF_MACHINE = frozenset(
    (*(check.name for check in client_checks((), ())), "other programs left the server its CPU")
)
MOST_AGAIN = 3
"""Times that a load which another program may have disturbed is sent once more, alone."""
MOST_OFF = 0.10
"""A figure of a clean load, from what the server did."""

Judge = Callable[[Scene, Sequence[Scene]], Judged]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """A scene's verdict; its group is sent when the first of it is asked for."""
    known: dict[str, Judged] = {}

    def found(scene: Scene, scenes: Sequence[Scene]) -> Judged:
        if scene.name not in known:
            (group,) = (group for group in groups(scenes) if scene in group)
            known.update((j.scene.name, j) for j in judged(group, tmp_path_factory.mktemp("runs")))
        return known[scene.name]

    return found


@pytest.mark.parametrize("row", DISTORTIONS, ids=lambda row: row.scene.name)
def test_a_distortion_is_invalid_for_its_own_reason(
    row: Distortion, judge: Judge, tmp_path: Path
) -> None:
    def of_its_own(one: Judged) -> list[Check]:
        return [check for check in one.failed if check.name.startswith(row.check)]

    one = judge(row.scene, [row.scene for row in DISTORTIONS])
    assert one.code == 3, one.said
    one = _again(one, lambda one: bool(of_its_own(one)), tmp_path)
    own = of_its_own(one)
    assert own, [(check.name, check.finding) for check in one.failed]
    assert row.key in own[0].remedy


@pytest.mark.parametrize("row", CLEAN, ids=lambda row: row.scene.name)
def test_a_clean_load_is_not_invalid(row: Clean, judge: Judge, tmp_path: Path) -> None:
    one = judge(row.scene, [row.scene for row in CLEAN])
    one = _again(one, lambda one: not one.failed, tmp_path)
    of_server = [(c.name, c.finding) for c in one.failed if c.name not in OF_MACHINE]
    assert of_server == [] or one.failed[0].name in OF_MACHINE, of_server
    assert one.code == (3 if one.failed else 0), one.said
    if row.figure is not None:
        name, right_ms = row.figure
        value_ms = one.value_ms(name)
        assert value_ms is not None
        assert one.failed or abs(value_ms / right_ms - 1) <= MOST_OFF


def _again(one: Judged, good: Callable[[Judged], bool], folder: Path) -> Judged:
    for attempt in range(MOST_AGAIN):
        if good(one):
            break
        (one,) = judged([one.scene], folder / str(attempt))
    return one


def test_names_stand_once() -> None:
    names = [row.scene.name for row in (*DISTORTIONS, *CLEAN)]
    assert len(set(names)) == len(names)


def test_a_folder_of_its_own(tmp_path: Path) -> None:
    """A name is a folder's."""
    for row in (*DISTORTIONS, *CLEAN):
        (tmp_path / row.scene.name).mkdir()
