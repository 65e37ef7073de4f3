"""Stages, requests and the client's own error as rows, and back to equal values."""

from __future__ import annotations

import json
import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence

from tgi_bench.codec import from_json, to_json
from tgi_bench.load_observation import (
    ClientFacts,
    ClientFloor,
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    StageConditions,
    TokenSource,
)

_STAGE_COLUMNS = (
    "stage, concurrency, rate_per_s, repeat, began_ns, ended_ns, measured_from_ns, "
    "measured_until_ns, dialect, workers, worker_cpu_ns, parent_cpu_ns, wall_ns, kernel_stamps, "
    "stamp_reason, clock_step_ns, connections_opened, connections_reopened, details, conditions"
)
_REQUEST_COLUMNS = (
    "stage, request_index, worker, part, conversation, turn, intended_ns, sent_ns, ended_ns, "
    "event_ns, event_tokens, events, shared_reads, prompt_tokens_asked, prompt_tokens, "
    "cached_tokens, output_tokens_asked, output_tokens, counted_by, finish_reason, status, "
    "new_connection, kernel_stamps, outcome, reason, resent, tokens_told, first_told, text_tokens"
)
_FLOOR_COLUMNS = (
    "streams, interval_ns, events, events_per_s, cpu_ns_per_event, ttft_error_p50_ns, "
    "ttft_error_p90_ns, ttft_error_p99_ns, itl_error_p50_ns, itl_error_p90_ns, itl_error_p99_ns, "
    "start_lateness_p50_ns, start_lateness_p90_ns, start_lateness_p99_ns, kernel_stamps"
)
_CUT_OFF = "cut off"
"""Why a stage was cut off stands among its details, where files of before have none."""
_ARRIVALS = "q"
_TOKENS = "i"

Cell = str | int | float | bytes | None


def insert_stage(connection: sqlite3.Connection, attempt_id: int, stage: LoadStage) -> None:
    """Writes one stage of one attempt, with what the client was."""
    client = stage.client
    connection.execute(
        f"INSERT INTO load_stages (attempt_id, {_STAGE_COLUMNS}) VALUES ({', '.join('?' * 21)})",
        (
            attempt_id,
            stage.index,
            stage.concurrency,
            stage.rate_per_s,
            stage.repeat,
            stage.began_ns,
            stage.ended_ns,
            stage.measured_from_ns,
            stage.measured_until_ns,
            stage.dialect,
            client.workers,
            json.dumps(client.worker_cpu_ns),
            client.parent_cpu_ns,
            client.wall_ns,
            client.kernel_stamps,
            client.stamp_reason,
            client.clock_step_ns,
            client.connections_opened,
            client.connections_reopened,
            json.dumps(_details(stage), ensure_ascii=False),
            to_json(stage.conditions),
        ),
    )


def select_stages(connection: sqlite3.Connection, attempt_id: int) -> tuple[LoadStage, ...]:
    """The stages of one attempt, by index."""
    rows = connection.execute(
        f"SELECT {_STAGE_COLUMNS} FROM load_stages WHERE attempt_id = ? ORDER BY stage",
        (attempt_id,),
    )
    return tuple(
        LoadStage(
            index=row[0],
            concurrency=row[1],
            rate_per_s=row[2],
            repeat=row[3],
            began_ns=row[4],
            ended_ns=row[5],
            measured_from_ns=row[6],
            measured_until_ns=row[7],
            dialect=row[8],
            client=ClientFacts(
                workers=row[9],
                worker_cpu_ns=tuple(json.loads(row[10])),
                parent_cpu_ns=row[11],
                wall_ns=row[12],
                kernel_stamps=bool(row[13]),
                stamp_reason=row[14],
                clock_step_ns=row[15],
                connections_opened=row[16],
                connections_reopened=row[17],
            ),
            details=tuple((n, value) for n, value in json.loads(row[18]) if n != _CUT_OFF),
            cut_off=dict(json.loads(row[18])).get(_CUT_OFF, ""),
            conditions=from_json(StageConditions, row[19]),
        )
        for row in rows
    )


def _details(stage: LoadStage) -> list[tuple[str, str]]:
    return [*stage.details, *([(_CUT_OFF, stage.cut_off)] if stage.cut_off else [])]


def insert_requests(
    connection: sqlite3.Connection, attempt_id: int, observations: Iterable[RequestObservation]
) -> None:
    """Writes requests of one attempt. Raises TypeError where an array is of another typecode."""
    connection.executemany(
        f"INSERT INTO requests (attempt_id, first_event_ns, last_event_ns, {_REQUEST_COLUMNS}) "
        f"VALUES ({', '.join('?' * 32)})",
        (_request_row(attempt_id, o) for o in observations),
    )


def select_requests(
    connection: sqlite3.Connection, attempt_id: int
) -> Iterator[RequestObservation]:
    """The requests of one attempt, by stage and index, one by one."""
    rows = connection.execute(
        f"SELECT {_REQUEST_COLUMNS} FROM requests WHERE attempt_id = ? "
        "ORDER BY stage, request_index",
        (attempt_id,),
    )
    for row in rows:
        yield RequestObservation(
            stage=row[0],
            request_index=row[1],
            worker=row[2],
            part=LoadPart(row[3]),
            conversation=row[4],
            turn=row[5],
            intended_ns=row[6],
            sent_ns=row[7],
            ended_ns=row[8],
            event_ns=_array(_ARRIVALS, row[9]),
            event_tokens=_array(_TOKENS, row[10]),
            events=row[11],
            shared_reads=row[12],
            prompt_tokens_asked=row[13],
            prompt_tokens=row[14],
            cached_tokens=row[15],
            output_tokens_asked=row[16],
            output_tokens=row[17],
            counted_by=TokenSource(row[18]),
            finish_reason=row[19],
            status=row[20],
            new_connection=bool(row[21]),
            kernel_stamps=bool(row[22]),
            outcome=RequestOutcome(row[23]),
            reason=row[24],
            resent=row[25],
            tokens_told=bool(row[26]),
            first_told=bool(row[27]),
            text_tokens=row[28],
        )


def _request_row(attempt_id: int, o: RequestObservation) -> tuple[Cell, ...]:
    return (
        attempt_id,
        o.event_ns[0] if o.event_ns else None,
        o.event_ns[-1] if o.event_ns else None,
        o.stage,
        o.request_index,
        o.worker,
        o.part.value,
        o.conversation,
        o.turn,
        o.intended_ns,
        o.sent_ns,
        o.ended_ns,
        _blob(_ARRIVALS, o.event_ns),
        _blob(_TOKENS, o.event_tokens),
        o.events,
        o.shared_reads,
        o.prompt_tokens_asked,
        o.prompt_tokens,
        o.cached_tokens,
        o.output_tokens_asked,
        o.output_tokens,
        o.counted_by.value,
        o.finish_reason,
        o.status,
        o.new_connection,
        o.kernel_stamps,
        o.outcome.value,
        o.reason,
        o.resent,
        o.tokens_told,
        o.first_told,
        o.text_tokens,
    )


def _blob(typecode: str, values: array[int]) -> bytes:
    """The values little-endian, whatever this machine is."""
    if values.typecode != typecode:
        raise TypeError(f"an array of typecode {values.typecode!r} where {typecode!r} is kept")
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _array(typecode: str, blob: bytes) -> array[int]:
    values: array[int] = array(typecode)
    values.frombytes(blob)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def insert_floor(connection: sqlite3.Connection, floor: ClientFloor) -> None:
    """Writes one measurement of the client's own error."""
    connection.execute(
        f"INSERT INTO client_floors ({_FLOOR_COLUMNS}) VALUES ({', '.join('?' * 15)})",
        (
            floor.streams,
            floor.interval_ns,
            floor.events,
            floor.events_per_s,
            floor.cpu_ns_per_event,
            *floor.ttft_error_ns,
            *(floor.itl_error_ns or (None, None, None)),
            *(floor.start_lateness_ns or (None, None, None)),
            floor.kernel_stamps,
        ),
    )


def select_floors(connection: sqlite3.Connection) -> tuple[ClientFloor, ...]:
    """Every measurement of the client's own error, in the order in which it was written."""
    rows = connection.execute(f"SELECT {_FLOOR_COLUMNS} FROM client_floors ORDER BY position")
    return tuple(
        ClientFloor(
            streams=row[0],
            interval_ns=row[1],
            events=row[2],
            events_per_s=row[3],
            cpu_ns_per_event=row[4],
            ttft_error_ns=(row[5], row[6], row[7]),
            itl_error_ns=_three(row[8:11]),
            start_lateness_ns=_three(row[11:14]),
            kernel_stamps=bool(row[14]),
        )
        for row in rows
    )


def _three(cells: Sequence[float | None]) -> tuple[float, float, float] | None:
    """p50, p90 and p99; None where they were not measured."""
    p50, p90, p99 = cells
    return None if p50 is None or p90 is None or p99 is None else (p50, p90, p99)
