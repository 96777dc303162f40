"""One side of a comparison, and whether two sides do the same work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

from diagnosis.compare.comparison import Comparability, ConfigChange
from diagnosis.recording import KINDS
from diagnosis.report import Diagnosis
from experiments.step_profile import UNDECIDED
from formatting import listed
from perfmodel.config import ExperimentConfig, ModelShape

#: Training keys that change what a step computes, hence no mere tuning.
_RESULT_KEYS = ("precision", "optimizer")
ONE_SIDED_LIMITS = (
    "FLOPs and bytes were recorded on one side only, so time bound by compute and time bound by HBM are one term."
)


@dataclass(frozen=True)
class Side:
    """A run's configuration and its diagnosis."""

    config: ExperimentConfig | None
    diagnosis: Diagnosis

    @property
    def step_s(self) -> float | None:
        return self.diagnosis.kpis.get("step_time_s") or None

    @property
    def tokens(self) -> int | None:
        return self.config.training.global_batch_tokens if self.config else None

    @property
    def chips(self) -> int | None:
        return self.config.hardware.chips if self.config else None

    @property
    def terms(self) -> dict[str, float]:
        """Shares of the step by term of the breakdown."""
        return self.diagnosis.breakdown_share

    @property
    def measures_limits(self) -> bool:
        """Return whether FLOPs and bytes say what limits most of the work, rather than its kind."""
        shares = [(op.time_share, op.resource_source == "roofline") for op in self.diagnosis.ops
                  if op.resource in ("compute", "hbm", "other")]  # fmt: skip
        return sum(part for part, is_measured in shares if is_measured) >= 0.5 * sum(part for part, _ in shares)

    def without_limits(self) -> Side:
        """The same with compute and HBM time as other work, and without a bottleneck of either."""
        terms = {key: part for key, part in self.terms.items() if key not in ("compute", "hbm")}
        terms["other"] = sum(self.terms.get(key, 0.0) for key in ("compute", "hbm", "other"))
        bottleneck = self.diagnosis.bottleneck
        if bottleneck.primary in ("compute", "memory"):
            bottleneck = replace(bottleneck, primary="unknown")
        return replace(self, diagnosis=replace(self.diagnosis, breakdown_share=terms, bottleneck=bottleneck))

    def scale(self, basis: str) -> float | None:
        """Factor from a share of the step to the unit of `basis`; None if there is none."""
        if basis == "share":
            return 1.0
        if basis == "step" or self.step_s is None:
            return self.step_s
        return self.step_s * self.chips / self.tokens if self.tokens and self.chips else None


def _model(model: ModelShape | None) -> dict[str, Any] | None:
    if model is None:
        return None
    return {key: value for key, value in asdict(model).items() if key not in ("name", "source")}


def _name(model: ModelShape | None) -> str:
    if model is None:
        return "not given"
    return model.name or f"{model.layers} layers of {model.d_model}"


def comparability(before: Side, after: Side) -> Comparability:
    """Same model, batch, sequence length, chip and precision; otherwise what differs and what can still be said."""
    timed = before.step_s is not None and after.step_s is not None
    a, b = before.config, after.config
    general: list[str] = []
    if before.measures_limits != after.measures_limits:
        general.append(ONE_SIDED_LIMITS)
    one, two = before.diagnosis.recording, after.diagnosis.recording
    if UNDECIDED not in (one.kind, two.kind) and one.kind != two.kind:
        general.append(f"The recordings differ: {KINDS[one.kind]} and {KINDS[two.kind]}.")
    if one.provenance != two.provenance:
        general.append("One profile is measured, the other reconstructed.")
    if not timed:
        general.append("One profile has no step markers, so there is no step time.")
    if a is None or b is None:
        missing = "No configuration was given" if a is None and b is None else "Only one side has a configuration"
        reasons = [f"{missing}: whether the workloads match is unknown."]
        if one.device != two.device:
            reasons.append(f"The devices differ: {one.device} and {two.device}.")
        allowed = "Times are compared without normalisation." if timed else "Only shares of the step can be compared."
        return Comparability(None, "step" if timed else "share", (*reasons, *general), allowed)
    other_model = _model(a.model) != _model(b.model)
    work = [f"The models differ: {_name(a.model)} and {_name(b.model)}."] if other_model else []
    resized = [
        f"The {words} differs: {_or_none(getattr(a.training, key))} and {_or_none(getattr(b.training, key))}."
        for key, words in (("global_batch", "global batch"), ("seq_len", "sequence length"))
        if getattr(a.training, key) != getattr(b.training, key)
    ]
    if a.hardware.chips != b.hardware.chips:
        resized.append(f"The number of chips differs: {a.hardware.chips} and {b.hardware.chips}.")
    chips = []
    if a.hardware.chip != b.hardware.chip:
        chips.append(f"The chips differ: {a.hardware.chip} and {b.hardware.chip}.")
    elif one.device != two.device:
        chips.append(f"The profiles were recorded on different devices: {one.device} and {two.device}.")
    numerics = [
        f"The {key} differs: {getattr(a.training, key)} and {getattr(b.training, key)}."
        for key in _RESULT_KEYS
        if getattr(a.training, key) != getattr(b.training, key)
    ]
    reasons = [*work, *resized, *chips, *numerics, *general]
    if not reasons:
        return Comparability(True, "step", (), _assumed(a))
    if not timed or other_model:
        return Comparability(
            False, "share", tuple(reasons), "Only shares of the step and utilisations can be compared."
        )
    if resized and (before.scale("token") is None or after.scale("token") is None):
        lacking = "Without batch and sequence length, only shares of the step can be compared."
        return Comparability(False, "share", tuple(reasons), lacking)
    if resized:
        text = "Times are compared per token: chips × step time ÷ tokens per step."
        if a.training.seq_len != b.training.seq_len:
            text += " Attention cost per token grows with sequence length."
        return Comparability(False, "token", tuple(reasons), text)
    text = "Tokens per step and chips are equal, so times per step are comparable."
    return Comparability(False, "step", tuple(reasons), text)


def _assumed(config: ExperimentConfig) -> str:
    """Settings that neither configuration states, assumed to be equal."""
    unknown = ["the model"] if config.model is None else []
    if config.training.global_batch is None:
        unknown.append("the batch")
    if config.training.seq_len is None:
        unknown.append("the sequence length")
    if not unknown:
        return ""
    return f"Neither configuration states {listed(unknown)}; assumed equal."


def _or_none(value: object) -> str:
    return "not given" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


_NO_DEFAULT = object()
_MODEL_DEFAULTS = {f"model.{field.name}": field.default for field in fields(ModelShape) if field.default is not MISSING}


def changes(before: ExperimentConfig | None, after: ExperimentConfig | None) -> tuple[ConfigChange, ...]:
    """Only the keys that differ, in the order of the configuration; the order of mesh axes counts as `mesh.order`."""
    if before is None or after is None:
        return ()
    one, two = _flat(before), _flat(after)
    if sorted(one["mesh.order"]) != sorted(two["mesh.order"]):
        del one["mesh.order"], two["mesh.order"]  # other axes lie in another order as a matter of course
    keys = list(dict.fromkeys([*one, *two]))
    if (before.model is None) != (after.model is None):
        # A model against none given: what the one leaves at its default tells nothing.
        keys = [key for key in keys if (one | two)[key] != _MODEL_DEFAULTS.get(key, _NO_DEFAULT)]
    return tuple(ConfigChange(key, one.get(key), two.get(key)) for key in keys if one.get(key) != two.get(key))


def _flat(config: ExperimentConfig) -> dict[str, Any]:
    hardware, mesh, training = config.hardware, config.mesh, config.training
    flat: dict[str, Any] = {
        "hardware.chip": hardware.chip,
        "hardware.topology": list(hardware.topology),
        "hardware.slices": hardware.slices,
    }
    flat |= {f"hardware.overrides.{key}": value for key, value in sorted(hardware.overrides.items())}
    # An axis of size one is the same as none.
    flat |= {f"mesh.ici.{axis}": size for axis, size in mesh.ici if size > 1}
    flat |= {f"mesh.dcn.{axis}": size for axis, size in mesh.dcn if size > 1}
    flat["mesh.order"] = [axis for axis, size in mesh.ici if size > 1]
    flat |= {f"model.{key}": value for key, value in (_model(config.model) or {}).items()}
    flat |= {f"training.{key}": _plain(value) for key, value in asdict(training).items()}
    return flat


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
