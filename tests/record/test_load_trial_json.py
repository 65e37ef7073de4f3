"""A load trial is read back equal, whatever it asks."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.record import samples
from tgi_bench.codec import from_json, to_json
from tgi_bench.dialects import API_NAMES
from tgi_bench.plan.plan import LoadTrial
from tgi_bench.trials.load import (
    ClosedLoop,
    Empirical,
    Extent,
    FileKind,
    Find,
    Fixed,
    LogNormal,
    Normal,
    OpenLoop,
    Process,
    RatePart,
    SharedPrefix,
    Slo,
    Sought,
    TraceTimes,
    Turns,
    Uniform,
    Until,
    Workload,
    WorkloadFile,
)

_count = st.integers(0, 10**9)
_some = st.integers(1, 10**6)
_ns = st.integers(0, 10**18)
_number = st.floats(0.001, 1e6)
_length = st.one_of(
    st.builds(Fixed, _count),
    st.builds(Uniform, _count, _count),
    st.builds(Normal, _number, _number, _count, _count),
    st.builds(LogNormal, _number, _number, _count, _count),
    st.builds(Empirical, st.lists(_count).map(tuple), st.lists(_number).map(tuple)),
)
_file = st.builds(
    WorkloadFile, st.text(min_size=1, max_size=9), st.sampled_from(FileKind), st.booleans()
)
_workload = st.builds(
    Workload,
    prompt=st.none() | _length,
    output=st.none() | _length,
    file=st.none()
    | st.builds(
        WorkloadFile, st.text(min_size=1, max_size=9), st.sampled_from(FileKind), st.booleans()
    ),
    shared_prefix=st.none() | st.builds(SharedPrefix, _some, _some),
    turns=st.none() | st.builds(Turns, _length, _ns),
    seed=st.none() | st.integers(0, 2**63 - 1),
)
_arrivals = st.one_of(
    st.builds(ClosedLoop, _count),
    st.builds(
        OpenLoop,
        rate_per_s=st.none() | _number,
        parts=st.lists(st.builds(RatePart, _ns, _number, _number), max_size=3).map(tuple),
        process=st.sampled_from(Process),
        burstiness=_number,
        seed=_count,
    ),
    st.builds(TraceTimes, _number),
)
_extent = st.builds(
    Extent,
    st.none() | _ns,
    st.none() | _count,
    _ns,
    _count,
    _ns,
    _count,
    st.none() | st.builds(Until, st.text(), st.floats(0.001, 1)),
)
_find = st.builds(Find, st.sampled_from(Sought), _number, _number, _number, _number, _count)


@settings(max_examples=60)
@given(
    workload=_workload,
    arrivals=_arrivals,
    extent=_extent,
    slos=st.lists(st.builds(Slo, st.text(), _number), max_size=3).map(tuple),
    find=st.none() | _find,
    spoken=st.sampled_from(API_NAMES),
    tokenizer=st.none() | st.text(),
)
def test_any_load_trial_is_read_back_equal(
    workload: Workload,
    arrivals: ClosedLoop | OpenLoop | TraceTimes,
    extent: Extent,
    slos: tuple[Slo, ...],
    find: Find | None,
    spoken: str,
    tokenizer: str | None,
) -> None:
    trial = dataclasses.replace(
        samples.load_trial(),
        workload=workload,
        arrivals=arrivals,
        extent=extent,
        slos=slos,
        find=find,
        spoken=spoken,
        tokenizer=tokenizer,
    )
    assert repr(from_json(LoadTrial, to_json(trial))) == repr(
        trial
    )  # repr tells True from 1 from 1.0


def test_a_union_s_value_says_its_kind() -> None:
    said = json.loads(to_json(samples.load_trial()))
    assert said["arrivals"] == {"kind": "closed_loop", "concurrency": 8}
    assert said["workload"]["prompt"] == {"kind": "fixed", "tokens": 512}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"closed_loop"', '"no_loop"'),
        ('"kind":"fixed"', '"kind":"broken"'),
        ('"kind":"fixed"', '"sort":"fixed"'),
        ('"spoken":"auto"', '"spoken":"latin"'),
        ('"find":null', '"find":3'),
        ('"find":null,', ""),
        ('"workload":{', '"workload":{"more":1,'),
        ('"tokenizer":null', '"tokenizer":'),
    ],
)
def test_what_is_no_load_trial_is_refused(old: str, new: str) -> None:
    text = to_json(samples.load_trial())
    assert old in text
    with pytest.raises((ValueError, TypeError)):
        from_json(LoadTrial, text.replace(old, new))


@pytest.mark.parametrize("text", ["null", "[]", "3", "{}", '"x"'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json(LoadTrial, text)
