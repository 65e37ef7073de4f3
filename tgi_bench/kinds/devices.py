"""What devices used beside what the estimate says, and whether they were left to themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tgi_bench.analysis.accelerator_of import row_of
from tgi_bench.analysis.planned import planned_setup
from tgi_bench.analysis.rules import Check, Rule, Seen, apply, listed
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.analysis.telemetry import DeviceFigures, TelemetrySummary
from tgi_bench.devices.observation import DeviceKind, Gauges
from tgi_bench.errors import InputError
from tgi_bench.estimate.memory import prefill_memory
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.step_time import generate_s
from tgi_bench.estimate.tables import accelerator, model_shape
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.plan.plan import BatchTrial, Deployment
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import UNDEFINED

THROTTLED = "devices were not throttled"
ALONE = "no other process computed on the devices"


def telemetry_checks(seen: Sequence[TelemetrySummary]) -> tuple[Check, ...]:
    """Two checks; () where nothing was asked of any device, as in runs of older versions.

    What could not be sampled fails none.
    """
    if not seen:
        return ()
    throttled = replace(
        _THROTTLED, unmade=_why(seen, _THROTTLED.unmade), well=lambda _: _unhindered(seen)
    )
    alone = replace(_ALONE, unmade=_why(seen, _ALONE.unmade))
    return apply(throttled, seen), apply(alone, seen)


def _throttled(seen: TelemetrySummary) -> Seen | None:
    if not seen.measured:
        return None
    share = sum(count for _, count in seen.throttled) / seen.measured
    reasons = ", ".join(f"{why}, {n / seen.measured:.0%}" for why, n in seen.throttled)
    return Seen(bool(seen.throttled), share, f"{reasons} of {seen.measured} samples")


def _unhindered(seen: Sequence[TelemetrySummary]) -> str:
    samples = sum(s.measured for s in seen)
    finding = f"in none of {samples:,} samples"
    if limited := sum(s.at_limit for s in seen if s.measured):
        finding += (
            f"; in {limited / samples:.0%} of them the clocks were held at the device's own power "
            "limit, which is how it is built"
        )
    return finding


def _alone(seen: TelemetrySummary) -> Seen | None:
    if seen.others is None:
        return None
    text = f"{seen.others} other process{'' if seen.others == 1 else 'es'}"
    return Seen(seen.others > 0, seen.others, text)


def _why(seen: Sequence[TelemetrySummary], otherwise: str) -> str:
    """Not measured, and why; or what the samples lack."""
    reasons = dict.fromkeys(s.absent for s in seen if s.absent)
    if reasons:
        return f"not measured: {listed(list(reasons))}"
    gpus = any(d.kind is DeviceKind.GPU for s in seen for d in s.devices)
    return otherwise if gpus else "not measured: no GPU was sampled"


_THROTTLED = Rule(
    THROTTLED,
    _throttled,
    "the devices do not tell",
    "cool the device or let it rest between trials, and give it its default power limit "
    "(`nvidia-smi --power-limit`); then measure again",
    rows="trials",
)
_ALONE = Rule(
    ALONE,
    _alone,
    "whose the processes on them are nobody could tell",
    "end them (`nvidia-smi` lists them), or choose other GPUs with CUDA_VISIBLE_DEVICES or "
    "server.docker.gpus; then measure again",
    rows="trials",
    well=lambda seen: f"in none of {len(seen)} trials",
)


HEADERS = (
    "Trial",
    "Devices",
    "J/token",
    "Estimated at most",
    "Average power",
    "Rated power",
    "Peak memory",
    "Estimated memory",
)
_GIB = 2**30
_PCIE = "PCIE"
_QUEUE, _BATCH = "tgi_queue_size", "tgi_batch_current_size"


@dataclass(frozen=True, slots=True)
class Expected:
    """What the estimate says of a trial's GPUs.

    j_per_token: all devices at rated power for all of the estimated time / new tokens: an upper
    bound. rated_w: of all devices. memory_bytes: of one device at the step that needs most.
    """

    j_per_token: float
    rated_w: float
    memory_bytes: float


def devices_section(run: Run, trial_ids: Collection[str] | None = None) -> str:
    """Devices and server around these trials; empty where nobody asked them. None: all trials."""
    seen = [s for s in run.telemetry if trial_ids is None or s.trial_id in trial_ids]
    if run.origin is Origin.SIMULATED:
        return _server(seen)
    devices = "\n".join(part for part in (_table(run, seen), _notes(run, seen)) if part)
    sections = (f"# Devices\n\n{devices}" if devices else "", _server(seen))
    return "\n".join(section for section in sections if section)


def _table(run: Run, seen: Sequence[TelemetrySummary]) -> str:
    rows = tuple(row for summary in seen for row in _rows(run, summary))
    return markdown(Table(HEADERS, rows, frozenset(range(2, len(HEADERS))))) if rows else ""


def _rows(run: Run, seen: TelemetrySummary) -> Iterator[tuple[str, ...]]:
    for devices in seen.devices:
        expected = _expected(run, seen.trial_id, devices)
        yield (
            f"{seen.trial_id}, {seen.part}" if seen.part else seen.trial_id,
            _names(devices),
            joules(devices.j_per_token),
            joules(None if expected is None else expected.j_per_token),
            watts(devices.average_power_w),
            watts(None if expected is None else expected.rated_w),
            gib(devices.peak_memory_bytes),
            gib(None if expected is None else expected.memory_bytes),
        )


def _names(devices: DeviceFigures) -> str:
    """ "2 x NVIDIA L4"."""
    counts: dict[str, int] = {}
    for name in devices.names:
        counts[name] = counts.get(name, 0) + 1
    return " + ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())


def joules(value: float | None) -> str:
    """ "0.412 J"."""
    return UNDEFINED if value is None else f"{value:.3g} J"


def watts(value: float | None) -> str:
    """ "287.4 W"."""
    return UNDEFINED if value is None else f"{value:.1f} W"


def gib(value: float | None) -> str:
    """ "14.20 GiB", of 2^30 bytes."""
    return UNDEFINED if value is None else f"{value / _GIB:.2f} GiB"


def _expected(run: Run, trial_id: str, devices: DeviceFigures) -> Expected | None:
    """None of a processor, of what is no batch, and of devices that are not the accelerator."""
    trial = next((t.trial for t in run.of(TrialSummary) if t.trial.trial_id == trial_id), None)
    if trial is None or devices.kind is not DeviceKind.GPU:
        return None
    deployment = run.plan.deployment(trial.deployment_id)
    name = _row(deployment, devices.names)
    if name is None or not _is(name, devices.names):
        return None
    try:
        return _estimated(_setup(deployment, name), trial)
    except InputError:
        return None  # a model outside the table, or a quantization: `plan` says which


def _row(deployment: Deployment, devices: Sequence[str]) -> str | None:
    """The accelerator that is estimated: the experiment's, or where the embedded server ran the
    model itself that of the devices; None where these are of no row or of several."""
    if deployment.planned_accelerator is not None:
        return deployment.planned_accelerator
    rows = {row_of(device) for device in devices}
    return rows.pop() if len(rows) == 1 else None


def _is(name: str, devices: Sequence[str]) -> bool:
    """Whether the devices are that accelerator: "NVIDIA A100-SXM4-40GB" is an "A100-40GB-SXM".

    The model's number, and the memory and PCIe where both names say them.
    """
    wanted = _words(name.removeprefix("RTX-"))
    number, sizes = wanted[0], {word for word in wanted if word.endswith("GB")}
    return all(
        number in (said := _words(device))
        and sizes <= set(said)
        and (_PCIE in wanted) == (_PCIE in said)
        for device in devices
    )


def _words(name: str) -> list[str]:
    return name.upper().replace("-", " ").split()


def _setup(deployment: Deployment, row: str) -> Setup:
    if deployment.planned_accelerator is None:
        return planned_setup(deployment, row).setup
    dtype = deployment.argument("dtype")
    return Setup(
        model=model_shape(deployment.model),
        accelerator=accelerator(row),
        num_shard=deployment.num_shard,
        quantize=deployment.quantize,
        dtype=dtype if isinstance(dtype, str) else "float16",
    )


def _estimated(setup: Setup, trial: BatchTrial) -> Expected:
    sizes = (trial.batch_size, trial.sequence_length, trial.decode_length)
    rated_w = setup.num_shard * setup.accelerator.tdp_w
    tokens = trial.batch_size * trial.decode_length
    return Expected(
        j_per_token=rated_w * generate_s(setup, *sizes) / tokens,
        rated_w=rated_w,
        memory_bytes=prefill_memory(setup, *sizes).total_bytes,
    )


def _notes(run: Run, seen: Sequence[TelemetrySummary]) -> str:
    """How the figures came about, and why some are missing."""
    lines = list(_missing(seen))
    sampled = [summary for summary in seen if summary.devices]
    integrated = dict.fromkeys(
        _names(devices) for s in sampled for devices in s.devices if devices.integrated
    )
    if integrated:
        lines.append(
            f"energy of {', '.join(integrated)} is its sampled power, integrated: it has no "
            "energy counter"
        )
    lines += _sampler(sampled)
    lines += _estimate(run, sampled)
    return "".join(f"- {line}\n" for line in lines)


def _missing(seen: Sequence[TelemetrySummary]) -> Iterator[str]:
    """Trials that share a reason share a line."""
    by_reason: dict[str, list[str]] = {}
    for summary in seen:
        if summary.no_energy:
            by_reason.setdefault(summary.no_energy, []).append(summary.trial_id)
    for why, trials in by_reason.items():
        which = list(dict.fromkeys(trials))
        if len(which) == len({summary.trial_id for summary in seen}):
            yield f"energy was not measured: {why}"
        else:
            yield f"energy of {', '.join(which)} was not measured: {why}"


def _sampler(sampled: Sequence[TelemetrySummary]) -> Iterator[str]:
    periods = sorted({s.period_ns for s in sampled if s.period_ns is not None})
    shares = [s.sampler_share for s in sampled if s.sampler_share is not None]
    if periods and shares:
        between = " to ".join(f"{p / 1e6:.0f}" for p in dict.fromkeys((periods[0], periods[-1])))
        yield (
            f"sampled every {between} ms by a process of its own, which took at most "
            f"{max(shares):.2%} of a core"
        )


def _estimate(run: Run, sampled: Sequence[TelemetrySummary]) -> Iterator[str]:
    """Which accelerator the estimate is of, or that it is not the one that was found."""
    gpus = dict.fromkeys(d.names for s in sampled for d in s.devices if d.kind is DeviceKind.GPU)
    ids = {t.trial.trial_id: t.trial.deployment_id for t in run.of(TrialSummary)}
    used = {ids[s.trial_id] for s in sampled if s.trial_id in ids}
    deployments = [run.plan.deployment(i) for i in sorted(used)]
    every = [name for names in gpus for name in names]
    named = dict.fromkeys(_row(deployment, every) for deployment in deployments)
    for name in named if gpus else ():
        if name is None:
            yield f"no estimate: {', '.join(dict.fromkeys(every))}: no one row of the accelerators"
        elif all(_is(name, names) for names in gpus):
            yield (
                f"the estimate is of the {name}: at most its rated power for all of the estimated "
                "time"
            )
        else:
            yield (
                f"no estimate: it would be of the {name}, which these devices are not; name theirs "
                "in server.embedded.accelerator"
            )


def _server(seen: Sequence[TelemetrySummary]) -> str:
    """Whether the server was idle before and after each trial."""
    told = {s.trial_id: (s.began, s.ended) for s in seen if s.began or s.ended}
    if not told:
        return ""
    busy = [
        f"- {trial_id}: {_said(moment, gauges)}\n"
        for trial_id, moments in told.items()
        for moment, gauges in zip(("before", "after"), moments, strict=True)
        if any(value for name, value in gauges if name in (_QUEUE, _BATCH))
    ]
    if busy:
        text = f"By its /metrics it was not idle around these:\n\n{''.join(busy)}"
    else:
        trials = "the trial" if len(told) == 1 else f"each of {len(told)} trials"
        text = (
            "By its /metrics it had no request waiting and none running just before and just after "
            f"{trials}.\n"
        )
    return f"# Server before and after\n\n{text}"


def _said(moment: str, gauges: Gauges) -> str:
    """ "before, 3 waiting and 8 running"."""
    known = dict(gauges)
    return f"{moment}, {known.get(_QUEUE, 0):g} waiting and {known.get(_BATCH, 0):g} running"
