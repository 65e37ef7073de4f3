"""The kinds of trial. It is imported by nothing beside it."""

from __future__ import annotations

from tgi_bench.kinds import batch, direct, load
from tgi_bench.kinds.kind import TrialKind

KINDS: tuple[TrialKind, ...] = (batch.KIND, load.KIND, direct.KIND)
