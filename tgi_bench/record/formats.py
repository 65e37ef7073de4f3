"""The format of run.db, and how a file of an older format becomes one of this format.

History of `format_version` (SQLite's user_version):
    1  the first: plan, environment, server starts, attempts, steps, published figures.
    2  load over HTTP: load trials, their attempts, stages and requests, the client's own error.
    3  imported tables that are not of TGI's steps: their entries and figures.
    4  telemetry: devices, their samples, and the server's gauges around a trial. Direct mode:
       task trials, their attempts, runs and calls, and loads of models.
    5  what makes a figure believed: what a server and its ranks said of themselves, what was seen
       around a stage, whose the tokens of an event are, requests that were sent again.
    6  one table of trials, of attempts and of starts for every kind of trial; the tables of what
       was seen are those that its classes declare. A launcher's keys as the experiment has them.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator

from tgi_bench.record import tables

APPLICATION_ID = 0x54474942
"""ASCII "TGIB", in the file's header: tells a run from any other SQLite file."""

FORMAT_VERSION = 6

_PLAN = """
CREATE TABLE run (
    run_id TEXT NOT NULL PRIMARY KEY,
    experiment TEXT NOT NULL,
    model TEXT NOT NULL,
    experiment_json TEXT NOT NULL,
    digest TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('measured', 'imported')),
    created_utc TEXT NOT NULL,
    finished INTEGER NOT NULL DEFAULT 0 CHECK (finished IN (0, 1))
);
CREATE TABLE environment (
    position INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE TABLE overrides (
    position INTEGER PRIMARY KEY,
    key_path TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE TABLE deployments (
    position INTEGER PRIMARY KEY,
    deployment_id TEXT NOT NULL UNIQUE,
    launcher TEXT NOT NULL,
    model TEXT NOT NULL,
    image TEXT,
    tgi_version TEXT NOT NULL,
    version_assumed INTEGER NOT NULL,
    engine TEXT NOT NULL,  -- tgi, vllm, sglang, llamacpp
    accelerator TEXT NOT NULL,
    pull_s REAL NOT NULL,  -- timeouts, one for each phase of a start
    download_s REAL NOT NULL,
    load_s REAL NOT NULL,
    probe_s REAL NOT NULL,
    env TEXT NOT NULL,  -- as JSON: names of variables that are handed on; never their values
    launcher_keys TEXT NOT NULL  -- as JSON: as the experiment has them
);
CREATE TABLE deployment_arguments (
    deployment_id TEXT NOT NULL REFERENCES deployments (deployment_id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,  -- as JSON: 2, "gptq", true, null
    variable INTEGER NOT NULL,
    PRIMARY KEY (deployment_id, position)
) WITHOUT ROWID;
"""
"""The same since format 1, but for the launcher's keys."""

_TRIALS = """
CREATE TABLE trials (
    position INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,  -- batch, load, direct
    host_id TEXT NOT NULL,  -- the deployment that it is sent to, or direct mode's model
    asked TEXT NOT NULL  -- as JSON: the whole trial
);
CREATE TABLE starts (  -- each time that a deployment's server was started, or a model loaded
    start_id INTEGER PRIMARY KEY,
    host_id TEXT NOT NULL,
    failure TEXT,  -- null: it became ready
    facts TEXT  -- as JSON: what it then said of itself
);
CREATE TABLE attempts (  -- each time that a trial was begun; the last one counts
    attempt_id INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL REFERENCES trials (trial_id),
    attempt INTEGER NOT NULL,
    outcome TEXT,  -- null: cut off, or running
    reason TEXT,
    UNIQUE (trial_id, attempt)
);
"""

_VIEWS = """
CREATE VIEW last_attempts AS
    SELECT * FROM attempts AS a
    WHERE attempt = (SELECT max(attempt) FROM attempts WHERE trial_id = a.trial_id);
CREATE VIEW step_latencies AS
    SELECT t.host_id AS deployment_id,
        json_extract(t.asked, '$.sequence_length') AS sequence_length,
        json_extract(t.asked, '$.decode_length') AS decode_length,
        json_extract(t.asked, '$.batch_size') AS batch_size,
        s.run_index, s.warmup, s.phase, s.step_index,
        (s.ended_ns - s.sent_ns) / 1e6 AS latency_ms, s.outcome
    FROM steps AS s
    JOIN last_attempts AS a USING (attempt_id)
    JOIN trials AS t USING (trial_id)
    ORDER BY t.position, s.run_index, s.step_index;
CREATE VIEW request_latencies AS
    SELECT t.trial_id, r.stage, s.concurrency, s.rate_per_s, r.request_index, r.part, r.outcome,
        (r.first_event_ns - r.intended_ns) / 1e6 AS ttft_ms,
        (r.first_event_ns - r.sent_ns) / 1e6 AS service_ttft_ms,
        -- tokens that came with the first event took no time after it: they are an integer of 4
        -- bytes, the least first, of which 3 are more than any event has
        (r.last_event_ns - r.first_event_ns) / 1e6 / nullif(max(r.output_tokens - (
            16 * (instr('0123456789ABCDEF', substr(hex(r.event_tokens), 1, 1)) - 1)
            + (instr('0123456789ABCDEF', substr(hex(r.event_tokens), 2, 1)) - 1)
            + 4096 * (instr('0123456789ABCDEF', substr(hex(r.event_tokens), 3, 1)) - 1)
            + 256 * (instr('0123456789ABCDEF', substr(hex(r.event_tokens), 4, 1)) - 1)
            + 1048576 * (instr('0123456789ABCDEF', substr(hex(r.event_tokens), 5, 1)) - 1)
            + 65536 * (instr('0123456789ABCDEF', substr(hex(r.event_tokens), 6, 1)) - 1)
        ), 0), 0) AS tpot_ms,
        (r.ended_ns - r.intended_ns) / 1e6 AS e2e_ms,
        (r.sent_ns - r.intended_ns) / 1e6 AS send_lag_ms,
        r.prompt_tokens, r.cached_tokens, r.output_tokens, r.finish_reason, r.status, r.reason
    FROM requests AS r
    JOIN last_attempts AS a USING (attempt_id)
    JOIN trials AS t USING (trial_id)
    LEFT JOIN load_stages AS s ON s.attempt_id = r.attempt_id AND s.stage = r.stage
    ORDER BY t.position, r.stage, r.request_index;
CREATE VIEW task_latencies AS
    SELECT t.trial_id, r.batch_size, r.run_index, r.warmup, c.call_index, c.part,
        c.prompt_tokens, c.new_tokens,
        (r.ended_ns - r.began_ns) / 1e9 AS run_s,
        (c.last_step_ns - c.began_ns) / 1e9 AS call_s,
        (c.first_step_ns - c.began_ns) / 1e6 AS prefill_ms,
        (c.last_step_ns - c.first_step_ns) / 1e6 AS decode_total_ms,
        r.peak_bytes, r.outcome
    FROM task_runs AS r
    JOIN last_attempts AS a USING (attempt_id)
    JOIN trials AS t USING (trial_id)
    LEFT JOIN task_calls AS c USING (attempt_id, probe, run_index)
    ORDER BY t.position, r.probe, r.run_index, c.call_index;
"""


def _real(column: str) -> str:
    """A number for a JSON text, with all of its digits; SQLite's own JSON has 15 of them."""
    return f"CASE WHEN {column} IS NOT NULL THEN json(printf('%!.17g', {column})) END"


def _bool(column: str) -> str:
    return f"json(CASE WHEN {column} THEN 'true' ELSE 'false' END)"


def _pairs(columns: str, rows: str) -> str:
    """A JSON array of pairs, as one value."""
    return f"json((SELECT json_group_array(json_array({columns})) FROM (SELECT * FROM {rows})))"


def _three(column: str) -> str:
    values = ", ".join(_real(f"{column}_p{p}_ns") for p in (50, 90, 99))
    return f"CASE WHEN {column}_p50_ns IS NOT NULL THEN json_array({values}) END"


def _attempts(table: str, kind: int) -> str:
    """Attempts of three kinds had ids of their own: now of one sequence."""
    return (
        "INSERT INTO attempts SELECT 3 * attempt_id + "
        f"{kind}, trial_id, attempt, outcome, reason FROM old_{table} ORDER BY attempt_id;"
    )


_BATCHES, _LOADS, _TASKS = 0, 1, 2

_ADDED_BY_5 = {
    "starts": ("identity TEXT NOT NULL DEFAULT '{}'", "shards TEXT"),
    "steps": ("health_ns INTEGER",),
    "step_ranks": ("requests INTEGER",),
    "load_stages": ("conditions TEXT NOT NULL DEFAULT '{}'",),
    "requests": (
        "resent INTEGER NOT NULL DEFAULT 0",
        "tokens_told INTEGER NOT NULL DEFAULT 1",
        "first_told INTEGER NOT NULL DEFAULT 1",
        "text_tokens INTEGER",
    ),
}
"""Columns that tables of formats 1 to 4 lack."""

_LAUNCHERS_FROM_5 = """
ALTER TABLE deployments RENAME COLUMN host TO launcher_keys;
UPDATE deployments SET launcher_keys = '{}' WHERE launcher_keys = 'null';
UPDATE deployments SET launcher_keys = json_set(json_remove(launcher_keys, '$.master_socket'),
    '$.sockets', json_extract(launcher_keys, '$.master_socket'),
    '$.headers', json((
        SELECT json_group_object(json_extract(value, '$[0]'), json_extract(value, '$[1]'))
        FROM json_each(launcher_keys, '$.headers'))))
    WHERE launcher = 'attach';
UPDATE deployments SET launcher_keys = json_set(launcher_keys, '$.options',
    json((SELECT json_group_object(json_extract(value, '$[0]'), json(json_extract(value, '$[1]')))
        FROM json_each(launcher_keys, '$.options'))))
    WHERE launcher = 'docker';
UPDATE deployments SET launcher_keys = json_set(launcher_keys,
    '$.engine', embedded_engine, '$.accelerator', accelerator)
    WHERE launcher = 'embedded';
ALTER TABLE deployments DROP COLUMN embedded_engine;
"""

_FROM_5: dict[str, str] = {
    "trials": f"""
        INSERT INTO trials (trial_id, kind, host_id, asked)
        SELECT trial_id, 'batch', deployment_id, json_object('trial_id', trial_id,
            'deployment_id', deployment_id, 'batch_size', batch_size,
            'sequence_length', sequence_length, 'decode_length', decode_length, 'runs', runs,
            'warmups', warmups, 'sampling', json_object('do_sample', {_bool("do_sample")},
                'temperature', {_real("temperature")}, 'top_k', top_k, 'top_p', {_real("top_p")},
                'typical_p', {_real("typical_p")},
                'repetition_penalty', {_real("repetition_penalty")},
                'watermark', {_bool("watermark")}),
            'step_timeout_s', {_real("step_timeout_s")},
            'prompt_seed', CASE WHEN prompt_seed <> '' THEN json(prompt_seed) END)
        FROM old_trials ORDER BY position;""",
    "load_trials": """
        INSERT INTO trials (trial_id, kind, host_id, asked)
        SELECT trial_id, 'load', deployment_id, asked FROM old_load_trials ORDER BY position;""",
    "task_trials": """
        INSERT INTO trials (trial_id, kind, host_id, asked)
        SELECT trial_id, 'direct', model_id, asked FROM old_task_trials ORDER BY position;""",
    "attempts": _attempts("attempts", _BATCHES),
    "load_attempts": _attempts("load_attempts", _LOADS),
    "task_attempts": _attempts("task_attempts", _TASKS),
    "starts": f"""
        INSERT INTO starts SELECT start_id, deployment_id, failure, CASE WHEN failure IS NULL THEN
            json_object('command', json(command),
                'arguments', CASE WHEN arguments_seen THEN {
        _pairs("name, text", "old_start_arguments WHERE start_id = s.start_id ORDER BY position")
    } END,
                'version', version, 'capacity_tokens', capacity_tokens,
                'capacity_source', capacity_source, 'simulated', {_bool("simulated")},
                'ready_ns', ready_ns, 'details', {
        _pairs("name, value", "old_start_details WHERE start_id = s.start_id ORDER BY position")
    },
                'identity', json(identity), 'shards', json(shards)) END
        FROM old_starts AS s ORDER BY start_id;""",
    "direct_loads": f"""
        INSERT INTO starts (host_id, failure, facts)
        SELECT model_id, failure, CASE WHEN failure IS NULL THEN json_object('device', device,
            'devices', devices, 'memory_bytes', memory_bytes, 'on_cpu', {_bool("on_cpu")},
            'dtype', dtype, 'parameters', parameters, 'weights_bytes', weights_bytes,
            'tokenizer', tokenizer, 'load_ns', load_ns, 'details', json(details)) END
        FROM old_direct_loads ORDER BY load_id;""",
    "published": """
        INSERT INTO attempts (trial_id, attempt)
        SELECT DISTINCT trial_id, 1 FROM old_published
        WHERE trial_id NOT IN (SELECT trial_id FROM attempts);
        INSERT INTO published SELECT attempt_id, position, step, mean_ns, lowest_ns, highest_ns,
            p50_ns, p90_ns, p99_ns, mean_tokens_per_s, lowest_tokens_per_s, highest_tokens_per_s
        FROM old_published JOIN attempts AS a USING (trial_id)
        WHERE attempt = (SELECT max(attempt) FROM attempts WHERE trial_id = a.trial_id);""",
    "published_entries": """
        INSERT INTO published_entries SELECT position, entry_id, model, accelerator, devices,
            parallelism, dtype, quantize, batch_size, prompt_tokens, new_tokens, runs,
            CASE WHEN outcome IS NOT NULL THEN
                json_object('outcome', outcome, 'reason', reason) END, doubts
        FROM old_published_entries;""",
    "published_values": """
        INSERT INTO published_values
        SELECT e.position, v.position, metric, kind, value, printed, v.reason
        FROM old_published_values AS v JOIN old_published_entries AS e USING (entry_id);""",
    "client_floors": f"""
        INSERT INTO client_floors SELECT position, streams, interval_ns, events, events_per_s,
            cpu_ns_per_event, {_three("ttft_error")}, {_three("itl_error")},
            {_three("start_lateness")}, kernel_stamps
        FROM old_client_floors;""",
    "load_stages": f"""
        INSERT INTO load_stages SELECT 3 * attempt_id + {_LOADS}, stage, concurrency, rate_per_s,
            repeat, began_ns, ended_ns, measured_from_ns, measured_until_ns, dialect,
            json_object('workers', workers, 'worker_cpu_ns', json(worker_cpu_ns),
                'parent_cpu_ns', parent_cpu_ns, 'wall_ns', wall_ns,
                'kernel_stamps', {_bool("kernel_stamps")}, 'stamp_reason', stamp_reason,
                'clock_step_ns', clock_step_ns, 'connections_opened', connections_opened,
                'connections_reopened', connections_reopened),
            (SELECT json_group_array(json(value)) FROM json_each(details)
                WHERE json_extract(value, '$[0]') IS NOT 'cut off'),
            coalesce((SELECT json_extract(value, '$[1]') FROM json_each(details)
                WHERE json_extract(value, '$[0]') = 'cut off'), ''),
            conditions
        FROM old_load_stages;""",
    "telemetry": f"""
        INSERT INTO telemetry SELECT a.attempt_id, absent, period_ns, cpu_ns, wall_ns, {
        _pairs(
            f"name, {_real('value')}",
            "old_server_gauges WHERE telemetry_id = t.telemetry_id AND moment = 'begin' "
            "ORDER BY name",
        )
    }, {
        _pairs(
            f"name, {_real('value')}",
            "old_server_gauges WHERE telemetry_id = t.telemetry_id AND moment = 'end' "
            "ORDER BY name",
        )
    }
        FROM old_telemetry AS t JOIN attempts AS a USING (trial_id, attempt);""",
    "telemetry_devices": """
        INSERT INTO telemetry_devices SELECT attempt_id, device, kind, name, memory_bytes,
            power_limit_mw, default_power_limit_mw
        FROM old_telemetry_devices JOIN old_telemetry USING (telemetry_id)
        JOIN attempts USING (trial_id, attempt);""",
    "telemetry_samples": """
        INSERT INTO telemetry_samples SELECT attempt_id, device, at_ns, power_mw, energy_mj,
            memory_bytes, utilisation, sm_clock_mhz, memory_clock_mhz, temperature_c, throttle,
            others
        FROM old_telemetry_samples JOIN old_telemetry USING (telemetry_id)
        JOIN attempts USING (trial_id, attempt);""",
}
"""What each table of format 5 becomes, under the name `old_...`, each after those it belongs to."""

_ALIKE = {
    "steps": _BATCHES,
    "step_ranks": _BATCHES,
    "requests": _LOADS,
    "task_runs": _TASKS,
    "task_calls": _TASKS,
}
"""Tables with the columns that they had, and whose attempts theirs were."""


def statements(script: str) -> tuple[str, ...]:
    """The script's statements one by one: sqlite3's executescript would commit between them."""
    without_comments = "\n".join(line.partition("--")[0] for line in script.splitlines())
    return tuple(s.strip() for s in without_comments.split(";") if s.strip())


@functools.cache
def new() -> tuple[str, ...]:
    """The statements that make an empty file of this format."""
    return (*statements(_PLAN), *_since_6())


def _since_6() -> tuple[str, ...]:
    return (*statements(_TRIALS), *tables.tables(), *statements(_VIEWS))


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Inside a transaction: from an older format to this one.

    Raises sqlite3.DatabaseError where the file has not what that format has.
    """
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    kept = {name for (name,) in found.fetchall()}
    for name, columns in _ADDED_BY_5.items() if version < 5 else ():
        for column in columns if name in kept else ():
            connection.execute(f"ALTER TABLE {name} ADD COLUMN {column}")
    for statement in _upgraded(connection):
        connection.execute(statement)


def _upgraded(connection: sqlite3.Connection) -> Iterator[str]:
    views = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall()
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
    same = {statement.split()[2] for statement in statements(_PLAN)}
    old = [name for (name,) in found.fetchall() if name not in same]
    yield from (f"DROP VIEW {name}" for (name,) in views)
    yield from (f"ALTER TABLE {name} RENAME TO old_{name}" for name in old)
    yield from _since_6()
    yield from statements(_LAUNCHERS_FROM_5)
    for name, script in _FROM_5.items():
        if name in old:
            yield from statements(script)
    for name, kind in _ALIKE.items():
        if name in old:
            found = connection.execute(f"SELECT name FROM pragma_table_info('{name}')")
            rest = ", ".join(column for (column,) in found if column != tables.ATTEMPT)
            yield (
                f"INSERT INTO {name} ({tables.ATTEMPT}, {rest}) "
                f"SELECT 3 * {tables.ATTEMPT} + {kind}, {rest} FROM old_{name}"
            )
    yield from (f"DROP TABLE old_{name}" for name in reversed(old))
