"""The tables of run.db (format 4) that hold what devices and a server's metrics said."""

from __future__ import annotations

TELEMETRY_TABLES = """
CREATE TABLE telemetry (  -- of one attempt at a trial of any kind
    telemetry_id INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL,  -- of a batch, a load or a task
    attempt INTEGER NOT NULL,
    absent TEXT NOT NULL,  -- why devices were not sampled; empty where they were
    period_ns INTEGER,  -- null: not sampled
    cpu_ns INTEGER,  -- of the sampler's process from the first sample to the last
    wall_ns INTEGER,
    UNIQUE (trial_id, attempt)
);
CREATE TABLE telemetry_devices (
    telemetry_id INTEGER NOT NULL REFERENCES telemetry (telemetry_id),
    device INTEGER NOT NULL,  -- 0-based
    kind TEXT NOT NULL CHECK (kind IN ('gpu', 'cpu')),
    name TEXT NOT NULL,
    memory_bytes INTEGER,  -- of the whole device
    power_limit_mw INTEGER,  -- as enforced
    default_power_limit_mw INTEGER,
    PRIMARY KEY (telemetry_id, device)
) WITHOUT ROWID;
CREATE TABLE telemetry_samples (  -- null: the device does not tell
    telemetry_id INTEGER NOT NULL,
    device INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,  -- of the client's monotonic clock
    power_mw INTEGER,
    energy_mj INTEGER,  -- a counter
    memory_bytes INTEGER,  -- used, by whomever
    utilisation REAL,  -- 0 to 1
    sm_clock_mhz INTEGER,
    memory_clock_mhz INTEGER,
    temperature_c INTEGER,
    throttle INTEGER,  -- bits, as NVML has them
    others INTEGER,  -- processes on the device that are not the deployment's
    PRIMARY KEY (telemetry_id, device, at_ns),
    FOREIGN KEY (telemetry_id, device) REFERENCES telemetry_devices (telemetry_id, device)
) WITHOUT ROWID;
CREATE TABLE server_gauges (  -- the server's /metrics just before and just after a trial
    telemetry_id INTEGER NOT NULL REFERENCES telemetry (telemetry_id),
    moment TEXT NOT NULL CHECK (moment IN ('begin', 'end')),
    name TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (telemetry_id, moment, name)
) WITHOUT ROWID;
"""
