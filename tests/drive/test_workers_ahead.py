"""Workers that were started before it was known what for."""

from __future__ import annotations

from tgi_bench.drive.workers import WorkerProcess, started_ahead


def _runs(worker: WorkerProcess) -> bool:
    return worker._process.poll() is None


def test_those_that_wait_are_taken_first_and_numbered_again() -> None:
    with started_ahead(2) as ahead:
        (first,) = ahead.taken(1)
        more = ahead.taken(2)
        try:
            assert [first.index, *(worker.index for worker in more)] == [0, 0, 1]
            assert len({worker._process.pid for worker in (first, *more)}) == 3
            assert all(_runs(worker) for worker in (first, *more))
        finally:
            for worker in (first, *more):
                worker.end()
    assert not any(_runs(worker) for worker in (first, *more))


def test_those_that_nobody_took_are_ended() -> None:
    with started_ahead(1) as ahead:
        (waiting,) = ahead._waiting
        assert _runs(waiting)
    assert not _runs(waiting)
    assert waiting._process.returncode == 0
