"""Two diagnosed profiles set side by side: of two experiments, or of one before and after a change.  Pure."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, sqrt

from diagnosis.compare.comparison import (
    CollectiveChange,
    Comparability,
    Comparison,
    FindingChange,
    KpiChange,
    TermChange,
)
from diagnosis.compare.matching import op_changes
from diagnosis.compare.sides import Side, changes, comparability
from diagnosis.compare.words import state
from diagnosis.report import Diagnosis, cited, numbered
from experiments.sentences import citing
from perfmodel.config import ExperimentConfig

Diagnosed = tuple[ExperimentConfig | None, Diagnosis]

_LOWER = {"step_time_s", "time_per_token_s", "idle", "communication", "input", "host", "communication_exposed",
          "communication_ops", "stragglers", "step_time_spread"}  # fmt: skip
_HIGHER = {"flops_utilization", "mfu", "goodput", "tokens_per_s_per_chip"}


def compare(before: Diagnosed, after: Diagnosed) -> Comparison:
    """What differs between two runs: whether they are comparable, configuration, KPIs, breakdown, ops, collectives.

    Each side is (configuration or None, its diagnosis).  Works with whatever was measured; what cannot be
    compared is None or left out, and `comparability` says why.
    """
    one, two = Side(*before), Side(*after)
    fit = comparability(one, two)
    if one.measures_limits != two.measures_limits:
        one, two = one.without_limits(), two.without_limits()
    scales = one.scale(fit.basis) or 1.0, two.scale(fit.basis) or 1.0
    ops, *matched = op_changes(one, two, scales)
    terms = _terms(one, two, scales)
    totals = _total(one, fit), _total(two, fit)
    significant = _significant(one, two, fit)
    changed = changes(one.config, two.config)
    shares = matched[0], matched[1]
    said = state(fit, (one, two), totals, significant, changed, terms, ops, shares)
    rows = numbered(cited(*said))
    return Comparison(
        comparability=fit,
        configuration=changed,
        kpis=_kpis(one, two, fit),
        breakdown=terms,
        ops=tuple(ops),
        ops_total=len(ops),
        matched_before=shares[0],
        matched_after=shares[1],
        collectives=_collectives(one, two, scales),
        findings=_findings(one.diagnosis, two.diagnosis),
        bottleneck=(one.diagnosis.bottleneck.primary, two.diagnosis.bottleneck.primary),
        speedup=totals[0] / totals[1] if totals[0] and totals[1] else None,
        significant=significant,
        statement=tuple(citing(text, rows) for text in said),
        evidence=tuple(rows.values()),
    )


def _total(side: Side, fit: Comparability) -> float | None:
    return None if fit.basis == "share" else side.scale(fit.basis)


def _significant(one: Side, two: Side, fit: Comparability) -> bool | None:
    """Whether the mean steps differ by more than twice the standard error of their difference."""
    if fit.basis != "step" or one.step_s is None or two.step_s is None:
        return None
    error = 0.0
    for side in (one, two):
        spread, count = side.diagnosis.kpis.get("step_time_spread"), side.diagnosis.recording.steps
        if spread is None or count < 2:
            return None
        error += (spread * (side.step_s or 0.0)) ** 2 / (count - 1)  # the spread is that of the population of steps
    return abs(one.step_s - two.step_s) > 2.0 * sqrt(error)


def _kpis(one: Side, two: Side, fit: Comparability) -> tuple[KpiChange, ...]:
    rows = []
    if fit.basis == "token":
        rows.append(_kpi("time_per_token_s", "s_per_token", one.scale("token"), two.scale("token"), ""))
    keys = list(dict.fromkeys([*one.diagnosis.kpis, *two.diagnosis.kpis]))
    for key in keys:
        was, now = one.diagnosis.kpis.get(key), two.diagnosis.kpis.get(key)
        if was is None and now is None:
            continue
        lacking = one if was is None else two
        reason = lacking.diagnosis.not_measured.get(key, "not reported by the profile") if None in (was, now) else ""
        row = _kpi(key, "s" if key.endswith("_s") else "share", was, now, reason)
        if key == "step_time_s" and fit.basis != "step":
            row = replace(row, change=None, ratio=None, better="")
        rows.append(row)
    rates = [
        side.tokens / (side.step_s * side.chips) if side.tokens and side.step_s and side.chips else None
        for side in (one, two)
    ]
    if None not in rates:
        rows.append(_kpi("tokens_per_s_per_chip", "tokens_per_s", rates[0], rates[1], ""))
    if fit.basis == "share":  # other work: less of it is no gain
        rows = [replace(row, better="") for row in rows]
    return tuple(rows)


def _kpi(key: str, unit: str, was: float | None, now: float | None, reason: str) -> KpiChange:
    change = None if was is None or now is None else now - was
    ratio = now / was if was and now is not None else None
    ratio = ratio if ratio is not None and isfinite(ratio) else None
    better = "lower" if key in _LOWER else "higher" if key in _HIGHER else ""
    return KpiChange(key, unit, was, now, change, ratio, better, reason)


def _terms(one: Side, two: Side, scales: tuple[float, float]) -> tuple[TermChange, ...]:
    was, now = one.terms, two.terms
    rows = []
    for term in dict.fromkeys([*was, *now]):
        first, second = was.get(term, 0.0) * scales[0], now.get(term, 0.0) * scales[1]
        rows.append(TermChange(term, first, second, second - first))
    return tuple(rows)


def _collectives(one: Side, two: Side, scales: tuple[float, float]) -> tuple[CollectiveChange, ...]:
    tables = [{(row.axis, row.kind): row for row in side.diagnosis.collectives} for side in (one, two)]
    rows = []
    for key in dict.fromkeys([*tables[0], *tables[1]]):
        was, now = tables[0].get(key), tables[1].get(key)
        times = [row.share * scale if row else None for row, scale in zip((was, now), scales, strict=True)]
        exposed = [
            row.exposed_s / side.step_s * scale if row and row.exposed_s is not None and side.step_s else None
            for row, side, scale in zip((was, now), (one, two), scales, strict=True)
        ]
        rows.append(
            CollectiveChange(
                axis=key[0],
                kind=key[1],
                before=times[0],
                after=times[1],
                change=(times[1] or 0.0) - (times[0] or 0.0),
                before_achieved_bytes_per_s=was.achieved_bytes_per_s if was else None,
                after_achieved_bytes_per_s=now.achieved_bytes_per_s if now else None,
                before_exposed=exposed[0],
                after_exposed=exposed[1],
            )
        )
    return tuple(sorted(rows, key=lambda row: -max(row.before or 0.0, row.after or 0.0)))


def _findings(one: Diagnosis, two: Diagnosis) -> tuple[FindingChange, ...]:
    was = {finding.rule: finding for finding in reversed(one.findings)}
    now = {finding.rule: finding for finding in reversed(two.findings)}
    rows = []
    for rule in dict.fromkeys([*reversed(was), *reversed(now)]):
        first, second = was.get(rule), now.get(rule)
        shown = second or first
        assert shown is not None
        state_ = "stays" if first and second else "new" if second else "gone"
        rows.append(
            FindingChange(
                rule,
                shown.title,
                state_,
                first.saving_share if first else None,
                second.saving_share if second else None,
            )
        )
    return tuple(rows)
