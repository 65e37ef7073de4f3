"""What a search found, how sure that is, and every step on the way to it."""

from __future__ import annotations

from tgi_bench.analysis.samples import Figure
from tgi_bench.kinds.load import words
from tgi_bench.kinds.load.figures import LoadSummary, SearchAnswer, StageSummary
from tgi_bench.kinds.load.group import PARTIAL
from tgi_bench.kinds.load.metrics import figure_of
from tgi_bench.kinds.load.search import keeps_up, met, succeeded, wilson
from tgi_bench.report import units
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import UNDEFINED
from tgi_bench.trials.load import SUCCESS, Find, LoadTrial, Sought


def search(load: LoadSummary, find: Find) -> str:
    """The answer, then every step on the way to it."""
    trial = load.trial
    delivered = "Delivered (1/s)" if find.sought is Sought.MAX_RATE else "Delivered"
    headers = (
        "Step",
        words.value_header(trial),
        delivered,
        "Repeat",
        "Measured for",
        "Requests/s",
        *map(words.slo, trial.slos),
        "All met",
    )
    rows = tuple(
        (
            str(number),
            words.value_asked(trial, stage.stage),
            units.RATE.text(_delivered(stage)),
            str(stage.stage.repeat + 1),
            _measured_for(stage),
            units.RATE.text(stage.requests_per_s),
            *_slo_cells(trial, stage),
            PARTIAL if load.cut_off(stage) else _all_met(trial, stage),
        )
        for number, stage in enumerate(load.stages, 1)
    )
    text = f"#### Search\n\n{answer(load, find)}\n"
    if not rows:
        return text
    return f"{text}\n{markdown(Table(headers, rows, frozenset(range(len(headers)))))}"


def _slo_cells(trial: LoadTrial, stage: StageSummary) -> tuple[str, ...]:
    """ "312.00 ms [290.00, 340.00], met": with the intervals that the answer's is made from."""
    cells = []
    for slo, (value, passed) in zip(trial.slos, stage.slos_met, strict=True):
        if slo.metric != SUCCESS:
            figure = figure_of(stage, slo.metric)
            why = words.unmeasurable(slo.metric.rpartition("_")[0], stage)
            text = why or words.slo_value(slo, value)
            if figure is not None:
                text = units.FINE_MS.text(figure)
        else:
            text = units.SHARE.text(value)
            if value is not None and stage.requests:
                low, high = wilson(round(value * stage.requests), stage.requests)
                text = units.SHARE.text(Figure(value, low, high))
        cells.append(text + words.slo_met(value, passed))
    return tuple(cells)


def _delivered(stage: StageSummary) -> float | None:
    """The rate that was sent, or the requests that were in flight."""
    return stage.concurrency if stage.stage.rate_per_s is None else stage.rate_per_s


def _measured_for(stage: StageSummary) -> str:
    """Without warm-up and cool-down, to a tenth of a second."""
    length_ns = stage.stage.measured_until_ns - stage.stage.measured_from_ns
    return words.seconds(round(length_ns / 1e8) * 1e8)


def _all_met(trial: LoadTrial, stage: StageSummary) -> str:
    """As the search counts it, with what it asks beside the SLOs where that was not so."""
    found = [met for _, met in stage.slos_met]
    if met(trial, stage):
        return "yes" if all(found) else "yes, by few requests"
    if False in found:
        return "no"
    if None in found:
        unknown = [s for s, (_, met) in zip(trial.slos, stage.slos_met, strict=True) if met is None]
        names = dict.fromkeys(slo.metric.rpartition("_")[0] for slo in unknown)
        reasons = {name: words.unmeasurable(name, stage) for name in names}
        told = (f"{name.upper()} is {why}" for name, why in reasons.items())
        return f"no: {'; '.join(told)}" if all(reasons.values()) else "no: too few requests"
    behind = stage.stage.rate_per_s is not None and succeeded(stage) and not keeps_up(stage)
    return "no: answers fell behind" if behind else "no: requests failed"


def answer(load: LoadSummary, find: Find) -> str:
    """What the search found, and its confidence interval, in sentences."""
    found = load.found
    rate = find.sought is Sought.MAX_RATE
    one, unit = ("rate", " requests/s") if rate else ("concurrency", "")
    if found is None or (found.value is None and found.high is None):
        return f"**No answer**: no {one} was tried to its end."
    text = f"{_found(load, found, find, unit)} {_interval(found, one, unit)}"
    text += _contradiction(found, unit)
    return text if found.done else f"{text} The search was cut off: this is what it knew then."


def _found(load: LoadSummary, found: SearchAnswer, find: Find, unit: str) -> str:
    one = "rate" if find.sought is Sought.MAX_RATE else "concurrency"
    high = UNDEFINED if found.high is None else f"{words.plain(found.high)}{unit}"
    if found.value is None:
        return (
            f"**None**: the lowest {one} tried, {high}, did not meet every SLO"
            f"{_times(found.missed_in)}."
        )
    text = (
        f"**{words.plain(found.value)}{unit}** is the highest {one} tried that met every SLO"
        f"{_times(found.met_in)}"
    )
    if find.sought is Sought.MAX_RATE and (sent := _sent(load, found.value)):
        text += f"; {sent} were delivered"
    if found.high is not None:
        following = "the next whole number" if _next_whole(find, found) else "the next tried"
        return f"{text}; {high}, {following}, did not{_times(found.missed_in)}."
    if found.value >= find.highest:
        bound = "it is the highest allowed"
    elif any(stage.asked is not None and stage.asked > found.value for stage in load.stages):
        bound = "none higher was tried to its end"
    else:
        bound = "none higher was tried"
    return f"{text}; {bound}, so the true one may be higher."


def _contradiction(found: SearchAnswer, unit: str) -> str:
    """Where two steps cannot both be right; empty where none are so."""
    if found.contradiction is None:
        return ""
    missed, met = map(words.plain, found.contradiction)
    return (
        f" The steps contradict each other: one at {missed}{unit} missed an SLO by more than "
        f"chance, one at {met}{unit} met every one by more than chance."
    )


def _next_whole(find: Find, found: SearchAnswer) -> bool:
    whole = find.sought is Sought.MAX_CONCURRENCY
    return whole and None not in (found.value, found.high) and found.high == (found.value or 0) + 1


def _times(often: tuple[int, int]) -> str:
    """ " (in 2 of 2 repeats)"; "" where it was tried once."""
    count, tries = often
    return f" (in {count} of {tries} repeats)" if tries > 1 else ""


def _sent(load: LoadSummary, value: float) -> str:
    """ "23.6 and 24.1 requests/s" of the repeats at a value; "" where none is known."""
    rates = [
        f"{stage.rate_per_s:.4g}"
        for stage in load.stages
        if stage.asked == value and stage.rate_per_s is not None
    ]
    return f"{' and '.join(rates)} requests/s" if rates else ""


def _interval(found: SearchAnswer, one: str, unit: str) -> str:
    low = None if found.sure_low is None else words.plain(found.sure_low)
    high = None if found.sure_high is None else words.plain(found.sure_high)
    met = "every SLO metric's whole interval met its SLO"
    missed = "the whole interval of one missed it"
    if low is None and high is None:
        return (
            f"95% confidence interval: not known, for at no {one} tried were the SLO metrics' "
            "intervals clear of their limits."
        )
    if low is None:
        return (
            f"95% confidence interval: up to {high}{unit}, at which {missed}; its lower end is "
            f"not known, for at no {one} tried did every SLO metric's whole interval meet its SLO."
        )
    if high is None:
        return (
            f"95% confidence interval: from {low}{unit} on, at which {met}; its upper end is not "
            f"known, for at no {one} tried did the whole interval of one miss it."
        )
    return f"95% confidence interval: {low} to {high}{unit} (at {low} {met}, at {high} {missed})."
