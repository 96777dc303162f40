"""Tools over chips and models as data: peaks and bandwidths, the ridge point, parameters, divisors, documented
flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm
from typing import Any

from pydantic import Field

from agent.tools import Arguments, ToolError
from experiments.step_profile import PROFILE
from formatting import did_you_mean
from perfmodel.accounting import forward_flops, model_flops_per_token, parameters
from perfmodel.chips import Chip, load_chips
from perfmodel.config import BATCH_ROLES
from perfmodel.step_time import missing_facts
from perfmodel.workload import chip_of
from perfmodel.xla_flags import cause_of, flag_set
from proposals.agents.tool_result import present
from proposals.agents.tools.common import Tools
from proposals.agents.tools.flags import PROGRAMS, FlagTools, program

#: FLOPs per parameter and token of a training step, forward and backward (Kaplan et al. 2020; scaling book 4).
FLOPS_PER_PARAMETER = 6
#: Exposed time from which a collective is worth a flag, as a share of the step.
WORTH_A_FLAG = 0.005


class ChipName(Arguments):
    chip: str = Field("", max_length=40, description="A chip's key such as v5p or h100; empty: the run's own.")


class MachineTools(Tools):
    def hardware(self, asked: ChipName) -> dict[str, Any]:
        """A chip as data: peak FLOP/s, HBM capacity and bandwidth, links, network per host, the link to host memory
        (PCIe), devices that JAX counts per chip, and the ridge point in FLOPs per byte, with sources. Everything is per
        chip unless its name says otherwise."""
        config = self._bench.config
        own = not asked.chip or asked.chip == config.hardware.chip
        chip = chip_of(config.hardware) if own else chip_named(asked.chip)
        precision = config.training.precision
        peak = chip.peak(precision)
        return present(
            {
                "chip": chip.name,
                "title": chip.title,
                "precision": precision,
                "peak_flops_per_s": peak,
                "peaks_flops_per_s": dict(chip.peak_flops_per_s),
                "hbm_capacity_bytes": chip.hbm_bytes,
                "hbm_usable_bytes": chip.hbm_usable_bytes,
                "hbm_bytes_per_s": chip.hbm_bytes_per_s,
                "ridge_flops_per_byte": peak / chip.hbm_bytes_per_s,
                "ici_link_bytes_per_s": chip.ici_link_bytes_per_s or None,
                "ici_axes": chip.ici_axes or None,
                "nvlink_bytes_per_s": chip.nvlink_bytes_per_s or None,
                "nvlink_domain": chip.nvlink_domain or None,
                "dcn_bytes_per_s_per_host": chip.dcn_bytes_per_s_per_host,
                "dcn_bytes_per_s_per_chip": chip.dcn_bytes_per_s_per_chip,
                "host_link_bytes_per_s": chip.host_link_bytes_per_s,
                "chips_per_host": chip.chips_per_host,
                "devices_per_chip": chip.devices_per_chip,
                "devices": _DEVICES[chip.devices_per_chip > 1] if chip.kind == "tpu" else None,
                "matrix_tile": chip.matrix_tile or None,
                "sources": {key: chip.sources[key] for key in sorted(chip.sources)[:12]},
            }
        )

    def model_size(self) -> dict[str, Any]:
        """Parameters and FLOPs per token of the model; where it is not known, what the measured FLOPs of a step
        suggest."""
        bench, config = self._bench, self._bench.config
        tokens = config.training.global_batch_tokens
        flops = [op.flops for op in bench.diagnosis.ops]
        step = sum(f for f in flops if f) * config.hardware.chips if any(flops) else None
        size_facts: dict[str, Any] = {
            "flops_per_step_measured": step,
            "tokens_per_step": tokens,
            "parameters_estimated_from_flops": step / (FLOPS_PER_PARAMETER * tokens) if step and tokens else None,
            "rule": "parameters ≈ FLOPs per step / (6 × tokens per step), attention and recompute counted as matmuls",
            "not_known": list(missing_facts(config)),
        }
        if config.model is not None:
            count = parameters(config.model)
            length = config.training.seq_len
            size_facts |= {
                "model": config.model.name,
                "parameters": count.total,
                "parameters_of_experts": count.experts or None,
                "layers": config.model.layers,
                "d_model": config.model.d_model,
                "flops_per_token": model_flops_per_token(config.model, length) if length else None,
                "forward_flops_per_token": forward_flops(config.model, length).total if length else None,
            }
        return present(size_facts)

    def divisors(self) -> dict[str, Any]:
        """What the batch must divide by on the current mesh, and the sizes of the model that axes must divide."""
        config = self._bench.config
        mesh, training, model = config.mesh, config.training, config.model
        shards = mesh.batch_shards
        data: dict[str, Any] = {
            "mesh_text": mesh.text(),
            "batch_shards": shards,
            "batch_axes": [axis for axis, size in mesh.ici if size > 1 and mesh.role(axis) in BATCH_ROLES],
            "grad_accum": training.grad_accum,
            "batch_must_divide_by": lcm(shards, shards * training.grad_accum),
            "global_batch": training.global_batch,
            "sequences_per_shard": training.global_batch / shards if training.global_batch else None,
            "sequence_shards": mesh.size("seq"),
            "tensor_shards": mesh.size("model"),
            "pipeline_stages": mesh.size("pipeline"),
        }
        if model is not None:
            data["model_sizes"] = {
                name: getattr(model, name)
                for name in ("heads", "kv_heads", "d_ff", "d_model", "layers", "experts", "vocab")
                if getattr(model, name)
            }
        return present(data)

    def _predicted_flags(self, set_now: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Sets of flags for the axes whose exposed communication is predicted, the longest first."""
        bench, seen = self._bench, set[str]()
        mesh, chip = bench.config.mesh, bench.config.hardware.chip
        for part, value in sorted(bench.diagnosis.breakdown_s.items(), key=lambda item: -item[1]):
            axis = "dcn" if part == "dcn" else part.removeprefix("ici:") if part.startswith("ici:") else ""
            kinds = ("all-reduce",) if axis == "dcn" else _BY_ROLE.get(mesh.role(axis), ()) if axis else ()
            for kind in kinds:
                cause = cause_of(kind, axis == "dcn")
                documented_set = flag_set(chip, cause) if cause and cause not in seen else None
                if cause and documented_set is not None:
                    seen.add(cause)
                    yield {
                        "cause": cause, "collective": kind, "axis": axis, "exposed_s": value, "predicted": True,
                        "flags": [f for f in documented_set.flags if f.split("=")[0] not in " ".join(set_now)],
                        "note": documented_set.note, "documented_in": documented_set.citation,
                    }  # fmt: skip

    def flags(self) -> dict[str, Any]:
        """XLA flags that are documented for the exposed collectives of this run on its chip, each with its source,
        and those
        that the configuration sets."""
        bench = self._bench
        set_now = list(bench.config.training.xla_flags)
        step = bench.diagnosis.kpis.get("step_time_s")
        rows: list[dict[str, Any]] = []
        run = program(bench)
        if run in ("pytorch", "megatron"):
            kinds = frozenset(row.kind for row in bench.diagnosis.collectives)
            own = [{"flag": f.name, "does": f.does} for f in FlagTools(bench).for_program(kinds)]
            return {"program": PROGRAMS[run], "set_in_the_configuration": set_now, "rows": [], "own": own,
                    "chip": bench.config.hardware.chip}  # fmt: skip
        for row in sorted(bench.diagnosis.collectives, key=lambda each: -(each.exposed_s or 0.0)):
            cause = cause_of(row.kind, row.axis == "dcn")
            documented_set = flag_set(bench.config.hardware.chip, cause) if cause else None
            small = row.exposed_s is not None and step and row.exposed_s < WORTH_A_FLAG * step
            if documented_set is None or small or any(each["cause"] == cause for each in rows):
                continue
            rows.append(
                present(
                    {
                        "cause": cause,
                        "collective": row.kind,
                        "axis": row.axis,
                        "exposed_s": row.exposed_s,
                        "flags": [f for f in documented_set.flags if f.split("=")[0] not in " ".join(set_now)],
                        "note": documented_set.note,
                        "documented_in": documented_set.citation,
                    }
                )
            )
        if bench.diagnosis.basis != PROFILE:
            rows = list(self._predicted_flags(set_now))
        return {"set_in_the_configuration": set_now, "rows": rows, "chip": bench.config.hardware.chip}


#: What a device of JAX is, by whether a chip is more than one.
_DEVICES = {
    True: "JAX counts each core of a chip as a device; a configuration counts chips, and a chip's figures are of all "
    "its cores together",
    False: "a chip is one device of JAX (its cores, where it has two, work as one, a megacore)",
}
#: Collectives of an axis by its role, where no profile tells.
_BY_ROLE = {
    "fsdp": ("all-gather", "reduce-scatter"), "data": ("all-reduce",), "model": ("all-gather", "reduce-scatter"),
    "expert": ("all-to-all",), "seq": ("collective-permute",), "pipeline": ("collective-permute",),
}  # fmt: skip


def chip_named(name: str) -> Chip:
    """Raises ToolError for a chip that is not known."""
    known = load_chips()
    if name not in known:
        raise ToolError(f"{name!r} is not a known chip.{did_you_mean(name, list(known))} Known: {', '.join(known)}.")
    return known[name]
