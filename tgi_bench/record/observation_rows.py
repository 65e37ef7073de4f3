"""Observations, server facts and published figures as rows, and back to equal values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import groupby

from tgi_bench.codec import from_json, to_json
from tgi_bench.observation import (
    Identity,
    Outcome,
    Phase,
    PublishedFigures,
    RankTiming,
    ServerFacts,
    ShardFacts,
    StepObservation,
)

_STEP_COLUMNS = (
    "run_index, step_index, warmup, phase, sent_ns, ended_ns, prompt_tokens, new_tokens, "
    "outcome, reason, health_ns"
)
_PUBLISHED_COLUMNS = (
    "step, mean_ns, lowest_ns, highest_ns, p50_ns, p90_ns, p99_ns, mean_tokens_per_s, "
    "lowest_tokens_per_s, highest_tokens_per_s"
)
_FACT_COLUMNS = (
    "command, arguments_seen, version, capacity_tokens, capacity_source, simulated, ready_ns, "
    "identity, shards"
)


def insert_steps(
    connection: sqlite3.Connection, attempt_id: int, observations: Sequence[StepObservation]
) -> None:
    """Writes the steps of one attempt with what each rank said of them."""
    connection.executemany(
        f"INSERT INTO steps (attempt_id, {_STEP_COLUMNS}) VALUES ({', '.join('?' * 12)})",
        [
            (
                attempt_id,
                o.run_index,
                o.step_index,
                o.warmup,
                o.phase.value,
                o.sent_ns,
                o.ended_ns,
                o.prompt_tokens,
                o.new_tokens,
                o.outcome.value,
                o.reason,
                o.health_ns,
            )
            for o in observations
        ],
    )
    connection.executemany(
        "INSERT INTO step_ranks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                attempt_id,
                o.run_index,
                o.step_index,
                r.shard_rank,
                r.forward_ns,
                r.decode_ns,
                r.total_ns,
                r.requests,
            )
            for o in observations
            for r in o.ranks
        ],
    )


def select_steps(connection: sqlite3.Connection, attempt_id: int) -> tuple[StepObservation, ...]:
    """The steps of one attempt by run and step, ranks ascending."""
    rank_rows = connection.execute(
        "SELECT run_index, step_index, shard_rank, forward_ns, decode_ns, total_ns, requests "
        "FROM step_ranks WHERE attempt_id = ? ORDER BY run_index, step_index, shard_rank",
        (attempt_id,),
    ).fetchall()
    ranks = {
        step: tuple(RankTiming(*row[2:]) for row in rows)
        for step, rows in groupby(rank_rows, key=lambda row: (row[0], row[1]))
    }
    step_rows = connection.execute(
        f"SELECT {_STEP_COLUMNS} FROM steps WHERE attempt_id = ? ORDER BY run_index, step_index",
        (attempt_id,),
    )
    return tuple(
        StepObservation(
            run_index=row[0],
            step_index=row[1],
            warmup=bool(row[2]),
            phase=Phase(row[3]),
            sent_ns=row[4],
            ended_ns=row[5],
            prompt_tokens=row[6],
            new_tokens=row[7],
            ranks=ranks.get((row[0], row[1]), ()),
            outcome=Outcome(row[8]),
            reason=row[9],
            health_ns=row[10],
        )
        for row in step_rows
    )


def insert_facts(connection: sqlite3.Connection, deployment_id: str, facts: ServerFacts) -> None:
    """Writes one start that became ready."""
    start = connection.execute(
        f"INSERT INTO starts (deployment_id, {_FACT_COLUMNS}) VALUES ({', '.join('?' * 10)})",
        (
            deployment_id,
            json.dumps(facts.command),
            facts.arguments is not None,
            facts.version,
            facts.capacity_tokens,
            facts.capacity_source,
            facts.simulated,
            facts.ready_ns,
            to_json(facts.identity),
            None if facts.shards is None else to_json(facts.shards),
        ),
    )
    connection.executemany(
        "INSERT INTO start_arguments VALUES (?, ?, ?, ?)",
        [
            (start.lastrowid, position, name, text)
            for position, (name, text) in enumerate(facts.arguments or ())
        ],
    )
    connection.executemany(
        "INSERT INTO start_details VALUES (?, ?, ?, ?)",
        [
            (start.lastrowid, position, name, value)
            for position, (name, value) in enumerate(facts.details)
        ],
    )


def select_facts(connection: sqlite3.Connection, deployment_id: str) -> ServerFacts | None:
    """What the last start that became ready said; None where none did."""
    row = connection.execute(
        f"SELECT start_id, {_FACT_COLUMNS} FROM starts "
        "WHERE deployment_id = ? AND failure IS NULL ORDER BY start_id DESC LIMIT 1",
        (deployment_id,),
    ).fetchone()
    if row is None:
        return None
    arguments = connection.execute(
        "SELECT name, text FROM start_arguments WHERE start_id = ? ORDER BY position", (row[0],)
    )
    details = connection.execute(
        "SELECT name, value FROM start_details WHERE start_id = ? ORDER BY position", (row[0],)
    )
    return ServerFacts(
        command=tuple(json.loads(row[1])),
        arguments=tuple((name, text) for name, text in arguments) if row[2] else None,
        version=row[3],
        capacity_tokens=row[4],
        capacity_source=row[5],
        simulated=bool(row[6]),
        ready_ns=row[7],
        details=tuple((name, value) for name, value in details),
        identity=from_json(Identity, row[8]),
        shards=None if row[9] is None else from_json(ShardFacts, row[9]),
    )


def insert_published(
    connection: sqlite3.Connection, trial_id: str, figures: Sequence[PublishedFigures]
) -> None:
    """Writes the rows that a published report has of one trial."""
    connection.executemany(
        f"INSERT INTO published (trial_id, position, {_PUBLISHED_COLUMNS}) "
        f"VALUES ({', '.join('?' * 12)})",
        [
            (
                trial_id,
                position,
                f.step,
                f.mean_ns,
                f.lowest_ns,
                f.highest_ns,
                f.p50_ns,
                f.p90_ns,
                f.p99_ns,
                f.mean_tokens_per_s,
                f.lowest_tokens_per_s,
                f.highest_tokens_per_s,
            )
            for position, f in enumerate(figures)
        ],
    )


def select_published(connection: sqlite3.Connection, trial_id: str) -> tuple[PublishedFigures, ...]:
    """The published rows of one trial, in the report's order."""
    rows = connection.execute(
        f"SELECT {_PUBLISHED_COLUMNS} FROM published WHERE trial_id = ? ORDER BY position",
        (trial_id,),
    )
    return tuple(PublishedFigures(*row) for row in rows)
