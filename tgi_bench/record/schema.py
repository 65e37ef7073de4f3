"""The format of run.db, and how a file of an older format becomes one of this format.

History of `format_version` (SQLite's user_version):
    1  the first: plan, environment, server starts, attempts, steps, published figures.
    2  load over HTTP: load trials, their attempts, stages and requests, the client's own error.
    3  imported tables that are not of TGI's steps: their entries and figures.
    4  telemetry: devices, their samples, and the server's gauges around a trial. Direct mode:
       task trials, their attempts, runs and calls, and loads of models.
    5  what makes a figure believed: what a server and its ranks said of themselves, what was seen
       around a stage, whose the tokens of an event are, requests that were sent again.
"""

from __future__ import annotations

from tgi_bench.record.task_schema import TASK_TABLES
from tgi_bench.record.telemetry_schema import TELEMETRY_TABLES

APPLICATION_ID = 0x54474942
"""ASCII "TGIB", in the file's header: tells a run from any other SQLite file."""

_VERSION_1 = """
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
    embedded_engine TEXT NOT NULL,
    accelerator TEXT NOT NULL,
    pull_s REAL NOT NULL,  -- timeouts, one for each phase of a start
    download_s REAL NOT NULL,
    load_s REAL NOT NULL,
    probe_s REAL NOT NULL,
    env TEXT NOT NULL,  -- as JSON: names of variables that are handed on; never their values
    host TEXT NOT NULL  -- as JSON: the launcher's own options; null for embedded
);
CREATE TABLE deployment_arguments (
    deployment_id TEXT NOT NULL REFERENCES deployments (deployment_id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,  -- as JSON: 2, "gptq", true, null
    variable INTEGER NOT NULL,
    PRIMARY KEY (deployment_id, position)
) WITHOUT ROWID;
CREATE TABLE trials (
    position INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL UNIQUE,
    deployment_id TEXT NOT NULL REFERENCES deployments (deployment_id),
    batch_size INTEGER NOT NULL,
    sequence_length INTEGER NOT NULL,
    decode_length INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    warmups INTEGER NOT NULL,
    do_sample INTEGER NOT NULL,
    temperature REAL,
    top_k INTEGER,
    top_p REAL,
    typical_p REAL,
    repetition_penalty REAL,
    watermark INTEGER NOT NULL,
    step_timeout_s REAL NOT NULL,
    prompt_seed TEXT NOT NULL  -- decimal: may be wider than SQLite's 64 bits; '': none
);
CREATE TABLE starts (  -- each time that a deployment's server was started
    start_id INTEGER PRIMARY KEY,
    deployment_id TEXT NOT NULL REFERENCES deployments (deployment_id),
    failure TEXT,  -- null: it became ready, and the columns below say what it said
    command TEXT,  -- as JSON
    arguments_seen INTEGER,
    version TEXT,
    capacity_tokens INTEGER,
    capacity_source TEXT,
    simulated INTEGER,
    ready_ns INTEGER
);
CREATE TABLE start_arguments (  -- as the server's `Args {...}` log line prints them
    start_id INTEGER NOT NULL REFERENCES starts (start_id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (start_id, position)
) WITHOUT ROWID;
CREATE TABLE start_details (  -- what else is known of it: /info, an image's digest, GPUs
    start_id INTEGER NOT NULL REFERENCES starts (start_id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (start_id, position)
) WITHOUT ROWID;
CREATE TABLE attempts (  -- each time that a trial was begun; the last one counts
    attempt_id INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL REFERENCES trials (trial_id),
    attempt INTEGER NOT NULL,
    outcome TEXT,  -- null: cut off, or running
    reason TEXT,
    UNIQUE (trial_id, attempt)
);
CREATE TABLE steps (  -- step_index 0 is the prefill step; times of one monotonic clock
    attempt_id INTEGER NOT NULL REFERENCES attempts (attempt_id),
    run_index INTEGER NOT NULL,
    step_index INTEGER NOT NULL,
    warmup INTEGER NOT NULL,
    phase TEXT NOT NULL,
    sent_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    prompt_tokens INTEGER,
    new_tokens INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (attempt_id, run_index, step_index)
) WITHOUT ROWID;
CREATE TABLE step_ranks (  -- the server's own durations of one step
    attempt_id INTEGER NOT NULL,
    run_index INTEGER NOT NULL,
    step_index INTEGER NOT NULL,
    shard_rank INTEGER NOT NULL,
    forward_ns INTEGER,
    decode_ns INTEGER,
    total_ns INTEGER,
    PRIMARY KEY (attempt_id, run_index, step_index, shard_rank),
    FOREIGN KEY (attempt_id, run_index, step_index)
        REFERENCES steps (attempt_id, run_index, step_index)
) WITHOUT ROWID;
CREATE TABLE published (  -- rows of an imported report: figures without samples
    trial_id TEXT NOT NULL REFERENCES trials (trial_id),
    position INTEGER NOT NULL,
    step TEXT NOT NULL,
    mean_ns REAL NOT NULL,
    lowest_ns REAL NOT NULL,
    highest_ns REAL NOT NULL,
    p50_ns REAL,
    p90_ns REAL,
    p99_ns REAL,
    mean_tokens_per_s REAL,
    lowest_tokens_per_s REAL,
    highest_tokens_per_s REAL,
    PRIMARY KEY (trial_id, position)
) WITHOUT ROWID;
CREATE VIEW last_attempts AS
    SELECT * FROM attempts AS a
    WHERE attempt = (SELECT max(attempt) FROM attempts WHERE trial_id = a.trial_id);
CREATE VIEW step_latencies AS
    SELECT t.deployment_id, t.sequence_length, t.decode_length, t.batch_size, s.run_index,
        s.warmup, s.phase, s.step_index, (s.ended_ns - s.sent_ns) / 1e6 AS latency_ms, s.outcome
    FROM steps AS s
    JOIN last_attempts AS a USING (attempt_id)
    JOIN trials AS t USING (trial_id)
    ORDER BY t.position, s.run_index, s.step_index;
"""

_VERSION_2 = """
CREATE TABLE load_trials (
    position INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL UNIQUE,
    deployment_id TEXT NOT NULL REFERENCES deployments (deployment_id),
    asked TEXT NOT NULL  -- as JSON: the whole load trial
);
CREATE TABLE load_attempts (  -- each time that a load was begun; the last one counts
    attempt_id INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL REFERENCES load_trials (trial_id),
    attempt INTEGER NOT NULL,
    outcome TEXT,  -- null: cut off, or running
    reason TEXT,
    UNIQUE (trial_id, attempt)
);
CREATE TABLE load_stages (  -- one concurrency or rate; written when its last answer is there
    attempt_id INTEGER NOT NULL REFERENCES load_attempts (attempt_id),
    stage INTEGER NOT NULL,
    concurrency INTEGER,
    rate_per_s REAL,
    repeat INTEGER NOT NULL,
    began_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    measured_from_ns INTEGER NOT NULL,
    measured_until_ns INTEGER NOT NULL,
    dialect TEXT NOT NULL,
    workers INTEGER NOT NULL,
    worker_cpu_ns TEXT NOT NULL,  -- as JSON: one number for each worker
    parent_cpu_ns INTEGER NOT NULL,
    wall_ns INTEGER NOT NULL,
    kernel_stamps INTEGER NOT NULL,
    stamp_reason TEXT NOT NULL,
    clock_step_ns INTEGER NOT NULL,
    connections_opened INTEGER NOT NULL,
    connections_reopened INTEGER NOT NULL,
    details TEXT NOT NULL,  -- as JSON: [[name, value], ...]
    PRIMARY KEY (attempt_id, stage)
) WITHOUT ROWID;
CREATE TABLE requests (  -- of a stage that was cut off too; times of one monotonic clock
    attempt_id INTEGER NOT NULL REFERENCES load_attempts (attempt_id),
    stage INTEGER NOT NULL,
    request_index INTEGER NOT NULL,
    worker INTEGER NOT NULL,
    part TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    intended_ns INTEGER NOT NULL,
    sent_ns INTEGER,  -- null: never sent
    ended_ns INTEGER NOT NULL,
    first_event_ns INTEGER,  -- the first and the last of event_ns, for queries
    last_event_ns INTEGER,
    event_ns BLOB NOT NULL,  -- little-endian int64, arrival of each event with a token
    event_tokens BLOB NOT NULL,  -- little-endian int32, its tokens
    events INTEGER NOT NULL,
    shared_reads INTEGER NOT NULL,
    prompt_tokens_asked INTEGER,
    prompt_tokens INTEGER,
    cached_tokens INTEGER,
    output_tokens_asked INTEGER,
    output_tokens INTEGER NOT NULL,
    counted_by TEXT NOT NULL,
    finish_reason TEXT,
    status INTEGER,
    new_connection INTEGER NOT NULL,
    kernel_stamps INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    UNIQUE (attempt_id, stage, request_index)
);
CREATE TABLE client_floors (  -- the load client against a null server on this machine
    position INTEGER PRIMARY KEY,
    streams INTEGER NOT NULL,
    interval_ns INTEGER NOT NULL,
    events INTEGER NOT NULL,
    events_per_s REAL NOT NULL,
    cpu_ns_per_event REAL NOT NULL,
    ttft_error_p50_ns REAL NOT NULL,
    ttft_error_p90_ns REAL NOT NULL,
    ttft_error_p99_ns REAL NOT NULL,
    itl_error_p50_ns REAL,
    itl_error_p90_ns REAL,
    itl_error_p99_ns REAL,
    start_lateness_p50_ns REAL,
    start_lateness_p90_ns REAL,
    start_lateness_p99_ns REAL,
    kernel_stamps INTEGER NOT NULL
);
CREATE VIEW last_load_attempts AS
    SELECT * FROM load_attempts AS a
    WHERE attempt = (SELECT max(attempt) FROM load_attempts WHERE trial_id = a.trial_id);
CREATE VIEW request_latencies AS
    SELECT t.trial_id, r.stage, s.concurrency, s.rate_per_s, r.request_index, r.part, r.outcome,
        (r.first_event_ns - r.intended_ns) / 1e6 AS ttft_ms,
        (r.first_event_ns - r.sent_ns) / 1e6 AS service_ttft_ms,
        (r.last_event_ns - r.first_event_ns) / 1e6 / nullif(max(r.output_tokens - 1, 0), 0)
            AS tpot_ms,
        (r.ended_ns - r.intended_ns) / 1e6 AS e2e_ms,
        (r.sent_ns - r.intended_ns) / 1e6 AS send_lag_ms,
        r.prompt_tokens, r.cached_tokens, r.output_tokens, r.finish_reason, r.status, r.reason
    FROM requests AS r
    JOIN last_load_attempts AS a USING (attempt_id)
    JOIN load_trials AS t USING (trial_id)
    LEFT JOIN load_stages AS s ON s.attempt_id = r.attempt_id AND s.stage = r.stage
    ORDER BY t.position, r.stage, r.request_index;
"""

_VERSION_3 = """
CREATE TABLE published_entries (  -- configurations of an imported table
    position INTEGER PRIMARY KEY,
    entry_id TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    accelerator TEXT NOT NULL,
    devices INTEGER NOT NULL,
    parallelism TEXT NOT NULL,
    dtype TEXT,
    quantize TEXT,
    batch_size INTEGER,
    prompt_tokens INTEGER,
    new_tokens INTEGER,
    runs INTEGER,
    outcome TEXT,  -- null: the table has neither a figure nor a word
    reason TEXT,
    doubts TEXT NOT NULL  -- as JSON: a list of sentences
);
CREATE TABLE published_values (  -- their figures; the metric's name ends in its unit
    entry_id TEXT NOT NULL REFERENCES published_entries (entry_id),
    position INTEGER NOT NULL,
    metric TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('measured', 'estimated')),
    value REAL NOT NULL,  -- after corrections
    printed TEXT NOT NULL,  -- the cell as the table has it
    reason TEXT NOT NULL,  -- of the correction or the doubt
    PRIMARY KEY (entry_id, position),
    UNIQUE (entry_id, metric, kind)
) WITHOUT ROWID;
"""

_VERSION_4 = TELEMETRY_TABLES + TASK_TABLES

_VERSION_5 = """
ALTER TABLE starts ADD COLUMN identity TEXT NOT NULL DEFAULT '{}';  -- as JSON: Identity
ALTER TABLE starts ADD COLUMN shards TEXT;  -- as JSON: ShardFacts; null: not asked
ALTER TABLE steps ADD COLUMN health_ns INTEGER;  -- a call that computes nothing, before the run
ALTER TABLE step_ranks ADD COLUMN requests INTEGER;  -- of the batch that the rank answered for
ALTER TABLE load_stages ADD COLUMN conditions TEXT NOT NULL DEFAULT '{}';  -- as JSON
ALTER TABLE requests ADD COLUMN resent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN tokens_told INTEGER NOT NULL DEFAULT 1;
ALTER TABLE requests ADD COLUMN first_told INTEGER NOT NULL DEFAULT 1;
ALTER TABLE requests ADD COLUMN text_tokens INTEGER;
DROP VIEW request_latencies;
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
    JOIN last_load_attempts AS a USING (attempt_id)
    JOIN load_trials AS t USING (trial_id)
    LEFT JOIN load_stages AS s ON s.attempt_id = r.attempt_id AND s.stage = r.stage
    ORDER BY t.position, r.stage, r.request_index;
"""

MIGRATIONS = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5)
"""MIGRATIONS[n] turns a file of format n into one of format n + 1; format 0 is empty."""

FORMAT_VERSION = len(MIGRATIONS)


def statements(script: str) -> tuple[str, ...]:
    """The script's statements one by one: sqlite3's executescript would commit between them."""
    without_comments = "\n".join(line.partition("--")[0] for line in script.splitlines())
    return tuple(s.strip() for s in without_comments.split(";") if s.strip())
