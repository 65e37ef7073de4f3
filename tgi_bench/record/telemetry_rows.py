"""Telemetry as rows, and back to equal values."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple

from tgi_bench.devices.observation import Device, DeviceKind, DeviceSample, Gauges, Telemetry

_BEGIN, _END = "begin", "end"


def insert_telemetry(
    connection: sqlite3.Connection, trial_id: str, attempt: int, seen: Telemetry
) -> None:
    """Writes what was sampled around one attempt, once."""
    telemetry_id = connection.execute(
        "INSERT INTO telemetry (trial_id, attempt, absent, period_ns, cpu_ns, wall_ns) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (trial_id, attempt, seen.absent, seen.period_ns, seen.cpu_ns, seen.wall_ns),
    ).lastrowid
    connection.executemany(
        f"INSERT INTO telemetry_devices VALUES ({', '.join('?' * 7)})",
        ((telemetry_id, *astuple(device)) for device in seen.devices),
    )
    connection.executemany(
        f"INSERT INTO telemetry_samples VALUES ({', '.join('?' * 12)})",
        ((telemetry_id, *astuple(sample)) for sample in seen.samples),
    )
    connection.executemany(
        "INSERT INTO server_gauges VALUES (?, ?, ?, ?)",
        (
            (telemetry_id, moment, name, value)
            for moment, gauges in ((_BEGIN, seen.began), (_END, seen.ended))
            for name, value in gauges
        ),
    )


def insert_end_gauges(
    connection: sqlite3.Connection, trial_id: str, attempt: int, gauges: Gauges
) -> None:
    """Writes the gauges just after an attempt whose telemetry is there. Raises KeyError."""
    row = connection.execute(
        "SELECT telemetry_id FROM telemetry WHERE trial_id = ? AND attempt = ?", (trial_id, attempt)
    ).fetchone()
    if row is None:
        raise KeyError(f"{trial_id}, attempt {attempt}")
    connection.executemany(
        "INSERT INTO server_gauges VALUES (?, ?, ?, ?)",
        ((row[0], _END, name, value) for name, value in gauges),
    )


def select_telemetry(connection: sqlite3.Connection, trial_id: str) -> Telemetry | None:
    """What was sampled around the trial's last attempt that has any; None: nothing was."""
    row = connection.execute(
        "SELECT telemetry_id, absent, period_ns, cpu_ns, wall_ns FROM telemetry "
        "WHERE trial_id = ? ORDER BY attempt DESC LIMIT 1",
        (trial_id,),
    ).fetchone()
    if row is None:
        return None
    telemetry_id, absent, period_ns, cpu_ns, wall_ns = row
    devices = connection.execute(
        "SELECT device, kind, name, memory_bytes, power_limit_mw, default_power_limit_mw "
        "FROM telemetry_devices WHERE telemetry_id = ? ORDER BY device",
        (telemetry_id,),
    )
    samples = connection.execute(
        "SELECT device, at_ns, power_mw, energy_mj, memory_bytes, utilisation, sm_clock_mhz, "
        "memory_clock_mhz, temperature_c, throttle, others FROM telemetry_samples "
        "WHERE telemetry_id = ? ORDER BY at_ns, device",
        (telemetry_id,),
    )
    return Telemetry(
        absent=absent,
        period_ns=period_ns,
        cpu_ns=cpu_ns,
        wall_ns=wall_ns,
        devices=tuple(Device(index, DeviceKind(kind), *rest) for index, kind, *rest in devices),
        samples=tuple(DeviceSample(*cells) for cells in samples),
        began=_gauges(connection, telemetry_id, _BEGIN),
        ended=_gauges(connection, telemetry_id, _END),
    )


def _gauges(connection: sqlite3.Connection, telemetry_id: int, moment: str) -> Gauges:
    rows = connection.execute(
        "SELECT name, value FROM server_gauges WHERE telemetry_id = ? AND moment = ? ORDER BY name",
        (telemetry_id, moment),
    )
    return tuple((name, value) for name, value in rows)
