"""A check of the verdict as one declaration: what should hold, of which rows, and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

SHOWN = 3
"""Rows that a finding names; of more it says how many."""


class CheckStatus(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class Failing:
    """One row that a check found bad.

    name: as it is shown. trial_id: None of a deployment as a whole; deployment_id: None where
    the row is of no server. text: what was seen there.
    """

    name: str
    trial_id: str | None
    deployment_id: str | None
    text: str

    def of(self, trial_id: str, deployment_id: str | None) -> bool:
        """Whether it speaks of that trial: of itself, or of its server."""
        if self.trial_id is None:
            return self.deployment_id == deployment_id
        return self.trial_id == trial_id


@dataclass(frozen=True, slots=True)
class Check:
    """One question of the verdict.

    finding: what was found; of a check that could not be made, why. remedy: the flag or key that
    mends it; empty unless it failed. failing: every row that is bad, worst first; () too where
    what failed is the run as a whole. of_client: whether it asks if the client was fit to measure.
    """

    name: str
    status: CheckStatus
    finding: str
    remedy: str = ""
    failing: tuple[Failing, ...] = ()
    of_client: bool = False

    @property
    def passed(self) -> bool:
        """Whether it fails no run: one that could not be made does not."""
        return self.status is not CheckStatus.FAILED

    @property
    def made(self) -> bool:
        """False where the run gives nothing to check."""
        return self.status is not CheckStatus.NOT_CHECKED


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to believe a run: VALID where every check passed."""

    checks: tuple[Check, ...]

    @classmethod
    def of(cls, checks: Iterable[Check]) -> Verdict:
        """Those of the client first: what it was not fit to measure it makes look bad."""
        return cls(tuple(sorted(checks, key=lambda check: not check.of_client)))

    @property
    def valid(self) -> bool:
        """True where every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def word(self) -> str:
        """VALID or INVALID."""
        return "VALID" if self.valid else "INVALID"

    def word_of(self, trial_id: str, deployment_id: str | None) -> str:
        """VALID or INVALID, of one trial: whether any check speaks against it."""
        return "INVALID" if self.against(trial_id, deployment_id) else "VALID"

    def against(self, trial_id: str, deployment_id: str | None) -> tuple[Check, ...]:
        """The failed checks that speak against this trial: those that name it or its server, and
        those that name no row, for they are of the whole run."""
        return tuple(
            check
            for check in self.checks
            if not check.passed
            and (not check.failing or any(row.of(trial_id, deployment_id) for row in check.failing))
        )


class JudgedRow(Protocol):
    """What a rule looks at, as Failing names it."""

    @property
    def name(self) -> str:
        """As it is shown."""

    @property
    def trial_id(self) -> str | None:
        """None of a deployment as a whole."""

    @property
    def deployment_id(self) -> str | None:
        """None where no server is behind it."""


R = TypeVar("R", bound=JudgedRow)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule found in one row.

    measure: larger is worse. remedy: in the place of the rule's, where the cause is known.
    """

    bad: bool
    measure: float
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Rule(Generic[R]):
    """One question: name says what should hold; look gives None where a row does not tell.

    unmade: why, where no row tells. remedy: the key or flag that mends it. rows: what they are
    called. well: the finding where all is well; by default the worst row's text. of_client: as
    of its Check.
    """

    name: str
    look: Callable[[R], Seen | None]
    unmade: str
    remedy: str
    rows: str = "loads"
    well: Callable[[Sequence[Seen]], str] | None = None
    of_client: bool = False


def limited(
    name: str,
    limit: tuple[Callable[[R], float | None], float],
    unmade: str,
    remedy: str,
    rows: str = "trials",
) -> Rule[R]:
    """A rule of a share that is at most its limit; limit: (share, most)."""
    share, most = limit

    def look(row: R) -> Seen | None:
        value = share(row)
        return None if value is None else Seen(value > most, value, f"{value:.1%}")

    def well(seen: Sequence[Seen]) -> str:
        return f"at most {max(0.0, *(one.measure for one in seen)):.1%}"

    return Rule(name, look, unmade, remedy, rows, well)


def apply(rule: Rule[R], rows: Sequence[R]) -> Check:
    """The rule as a check: failed where one row is bad; not checked where none tells."""
    return replace(_applied(rule, rows), of_client=rule.of_client)


def _applied(rule: Rule[R], rows: Sequence[R]) -> Check:
    found = [(row, seen) for row in rows if (seen := rule.look(row)) is not None]
    if not found:
        return unmade(rule.name, rule.unmade)
    found.sort(key=lambda pair: -pair[1].measure)
    bad = [(row, seen) for row, seen in found if seen.bad]
    if bad:
        failing = tuple(
            Failing(row.name, row.trial_id, row.deployment_id, seen.text) for row, seen in bad
        )
        shown = listed([f"{row.name} ({row.text})" for row in failing])
        finding = f"{len(bad)} of {len(found)} {rule.rows}: {shown}"
        remedies = dict.fromkeys(seen.remedy or rule.remedy for _, seen in bad)
        return failed(rule.name, finding, "; ".join(remedies), failing)
    if rule.well is not None:
        return passed(rule.name, rule.well([seen for _, seen in found]))
    where = "" if len(found) == 1 else f", at worst of {len(found)} {rule.rows}"
    return passed(rule.name, f"{found[0][1].text}{where}")


def passed(name: str, finding: str) -> Check:
    """A check with nothing against it."""
    return Check(name, CheckStatus.PASSED, finding)


def failed(name: str, finding: str, remedy: str, failing: tuple[Failing, ...] = ()) -> Check:
    """A check that makes a run INVALID."""
    return Check(name, CheckStatus.FAILED, finding, remedy, failing)


def unmade(name: str, why: str) -> Check:
    """A check that could not be made."""
    return Check(name, CheckStatus.NOT_CHECKED, why)


def listed(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {more} more" if more > 0 else "")
