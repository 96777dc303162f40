"""The tool over what needs neither model nor batch: chips beside each other, and the step if every op kept its place
under the roof."""

from __future__ import annotations

from pydantic import Field

from agent.tools import Arguments
from perfmodel.workload import chip_of
from proposals.agents.tool_result import ToolResult
from proposals.agents.tools.common import Tools
from proposals.agents.tools.machine import chip_named


class OtherChip(Arguments):
    chip: str = Field("", max_length=40, description="Another chip's key; empty: the run's own.")
    precision: str = Field("", max_length=10, description="Another precision of the matmuls, such as fp8.")


class ModelFree(ToolResult):
    """A chip or precision beside the run's own, as far as no model is needed."""

    chip: str = ""
    own_chip: str = ""
    precision: str = ""
    own_precision: str = ""
    natively_supported: bool = True
    native_precisions: tuple[str, ...] = ()
    peak_flops_per_s: int | float = 0.0
    peak_flops_over_own: float = 0.0
    hbm_bytes_per_s: int | float = 0.0
    hbm_bandwidth_over_own: float = 0.0
    hbm_usable_bytes: int | float = 0.0
    hbm_over_own: float = 0.0
    measured_peak_bytes: float | None = None
    measured_peak_of_its_hbm_share: float | None = None
    compute_share: float | None = None
    hbm_share: float | None = None
    step_time_s: float | None = None
    step_share_if_each_part_scaled: float | None = None
    step_time_if_each_part_scaled_s: float | None = None


class ModelFreeTools(Tools):
    def without_model(self, asked: OtherChip) -> ModelFree:
        """What can be said without the model: peak FLOP/s, HBM bandwidth and capacity of another chip or precision over
        the run's own, whether the chip has units for a precision, the measured peak memory beside its HBM, and a bound
        on the step if every part scaled with what bounds it."""
        bench = self._bench
        config, diagnosis = bench.config, bench.diagnosis
        own = chip_of(config.hardware)
        there = chip_named(asked.chip) if asked.chip else own
        now, then = config.training.precision, asked.precision or config.training.precision
        flops = there.peak(then) / own.peak(now)
        bandwidth = there.hbm_bytes_per_s / own.hbm_bytes_per_s
        shares, step = diagnosis.breakdown_share, diagnosis.kpis.get("step_time_s")
        compute, hbm = shares.get("compute"), shares.get("hbm")
        left = None
        if compute is not None and hbm is not None and (flops, bandwidth) != (1.0, 1.0):
            left = compute / flops + hbm / bandwidth + (1 - compute - hbm)
        peak = bench.profile.memory.peak_bytes
        return ModelFree(
            chip=there.title, own_chip=own.title, precision=then, own_precision=now,
            natively_supported=then in there.peak_flops_per_s, native_precisions=tuple(there.peak_flops_per_s),
            peak_flops_per_s=there.peak(then), peak_flops_over_own=flops, hbm_bytes_per_s=there.hbm_bytes_per_s,
            hbm_bandwidth_over_own=bandwidth, hbm_usable_bytes=there.hbm_usable_bytes,
            hbm_over_own=there.hbm_usable_bytes / own.hbm_usable_bytes, measured_peak_bytes=peak,
            measured_peak_of_its_hbm_share=peak / there.hbm_usable_bytes if peak else None,
            compute_share=compute, hbm_share=hbm, step_time_s=step, step_share_if_each_part_scaled=left,
            step_time_if_each_part_scaled_s=step * left if step and left else None,
        )  # fmt: skip
