"""The tables of direct mode in run.db, of format 4."""

from __future__ import annotations

TASK_TABLES = """
CREATE TABLE task_trials (
    position INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL UNIQUE,
    model_id TEXT NOT NULL,
    asked TEXT NOT NULL  -- as JSON: the whole task trial
);
CREATE TABLE task_attempts (  -- each time that a task was begun; the last one counts
    attempt_id INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL REFERENCES task_trials (trial_id),
    attempt INTEGER NOT NULL,
    outcome TEXT,  -- null: cut off, or running
    reason TEXT,
    UNIQUE (trial_id, attempt)
);
CREATE TABLE direct_loads (  -- each time that a model was loaded
    load_id INTEGER PRIMARY KEY,
    model_id TEXT NOT NULL,
    failure TEXT,  -- null: it was loaded, and the columns below say what it came to
    device TEXT,
    devices INTEGER,
    memory_bytes INTEGER,
    on_cpu INTEGER,
    dtype TEXT,
    parameters INTEGER,
    weights_bytes INTEGER,
    tokenizer TEXT,
    load_ns INTEGER,
    details TEXT  -- as JSON: [[name, value], ...]
);
CREATE TABLE task_runs (  -- warm-ups and runs; times of one monotonic clock
    attempt_id INTEGER NOT NULL REFERENCES task_attempts (attempt_id),
    batch_size INTEGER NOT NULL,
    probe INTEGER NOT NULL,
    run_index INTEGER NOT NULL,
    warmup INTEGER NOT NULL,
    began_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    peak_bytes INTEGER,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (attempt_id, probe, run_index)
) WITHOUT ROWID;
CREATE TABLE task_calls (  -- the generate calls of a run
    attempt_id INTEGER NOT NULL,
    probe INTEGER NOT NULL,
    run_index INTEGER NOT NULL,
    call_index INTEGER NOT NULL,
    part TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    new_tokens INTEGER NOT NULL,
    began_ns INTEGER NOT NULL,
    first_step_ns INTEGER,  -- the first and the last of step_ends_ns, for queries
    last_step_ns INTEGER,
    step_ends_ns BLOB NOT NULL,  -- little-endian int64, one for each step
    PRIMARY KEY (attempt_id, probe, run_index, call_index),
    FOREIGN KEY (attempt_id, probe, run_index)
        REFERENCES task_runs (attempt_id, probe, run_index)
) WITHOUT ROWID;
CREATE VIEW last_task_attempts AS
    SELECT * FROM task_attempts AS a
    WHERE attempt = (SELECT max(attempt) FROM task_attempts WHERE trial_id = a.trial_id);
CREATE VIEW task_latencies AS
    SELECT t.trial_id, r.batch_size, r.run_index, r.warmup, c.call_index, c.part,
        c.prompt_tokens, c.new_tokens,
        (r.ended_ns - r.began_ns) / 1e9 AS run_s,
        (c.last_step_ns - c.began_ns) / 1e9 AS call_s,
        (c.first_step_ns - c.began_ns) / 1e6 AS prefill_ms,
        (c.last_step_ns - c.first_step_ns) / 1e6 AS decode_total_ms,
        r.peak_bytes, r.outcome
    FROM task_runs AS r
    JOIN last_task_attempts AS a USING (attempt_id)
    JOIN task_trials AS t USING (trial_id)
    LEFT JOIN task_calls AS c USING (attempt_id, probe, run_index)
    ORDER BY t.position, r.probe, r.run_index, c.call_index;
"""
