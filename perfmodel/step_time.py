"""Step time: terms under efficiencies become an estimate, its parts, bounds and a range.

The lower bound lets every resource work at its best and at the same time: the largest term.  The upper bound lets
nothing overlap: the sum.  The estimate hides what the schedule can hide (scaling book 1.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfmodel.arrays import Floats, special
from perfmodel.efficiency import CLASSES, Efficiencies
from perfmodel.terms import Terms, Traffic
from perfmodel.workload import REMAT

#: Two-sided 80 % of a normal distribution.  The bounds are to hold where its tails are heavier.
Z80 = 1.2816
ZBOUND = 2.5
#: Share of measurements on either side of the 80 % interval.
TAIL = 0.1


@dataclass(frozen=True)
class Priced:
    """Times of many candidates in seconds; arrays of one broadcast shape.  What only a page shows, the bounds and the
    range, is computed where it is asked for: a proposal prices its candidates at dozens of efficiencies.

    parts_s: parts of the estimate, which they add up to: compute, hbm, ici:<group>, dcn, bubble, overhead.
    waiting_s: of the compute, what the chip waits for launches.  hbm_s: time of HBM, hidden or not; in_flight_s: of
    messages, likewise, by ici:<group> and dcn.
    resources_s: the breakdown behind the bounds: compute (at best, no less than the model
    FLOPs at peak), hbm, ici:<group>, dcn, bubble, overhead.
    lower is the largest of compute, hbm, each ici group and dcn; upper is the sum of all.  smooth_s: the step where
    nothing stalls, stall_s: what a slow host adds, stall_chance: how likely there is one.  again, scores_again: how
    often the forward layers, and their attention scores, are computed again.
    """

    terms: Terms
    efficiencies: Efficiencies
    estimate_s: Floats
    parts_s: Mapping[str, Floats]
    waiting_s: Floats
    hbm_s: Floats
    in_flight_s: Mapping[str, Floats]
    exposed_comms_s: Floats
    smooth_s: Floats
    stall_s: Floats
    stall_chance: Floats
    again: Floats
    scores_again: Floats

    @cached_property
    def links_s(self) -> Mapping[str, Floats]:
        """Time that the links are asked for.  The fixed times of collectives may hide beside launches; no resource is
        asked for longer than the step."""
        return {name: np.minimum(value, self.smooth_s) for name, value in self.in_flight_s.items()}

    @property
    def hardware_flops_s(self) -> Floats:
        """Time of all FLOPs executed, recomputed ones included, at peak."""
        t = self.terms
        executed = t.dense_s + t.experts_s + t.scores_s + t.head_s
        return (
            executed + self.again * (t.dense_forward_s + t.experts_forward_s) + self.scores_again * t.scores_forward_s
        )

    @cached_property
    def resources_s(self) -> Mapping[str, Floats]:
        t = self.terms
        at_peak = t.dense_s + t.experts_s + t.scores_s + t.head_s
        compute = np.maximum(self.parts_s["compute"] * self._best, np.minimum(at_peak, self.estimate_s))
        resources = {"compute": compute, "hbm": self.hbm_s, **self.links_s, "bubble": self.parts_s["bubble"]}
        overhead = self.parts_s["overhead"]
        summed = sum(resources.values(), np.zeros(1)) + overhead
        # Gaps no resource explains, as far as the fit has seen them, and no longer than the step, stalled or not.
        unexplained = np.maximum(0.0, np.maximum(self.estimate_s / self._best, self._interval[1]) - summed)
        return resources | {
            "overhead": np.minimum(overhead + unexplained, np.maximum(overhead, self.estimate_s + self.stall_s))
        }

    @cached_property
    def lower_s(self) -> Floats:
        overlappable = [value for name, value in self.resources_s.items() if name not in ("bubble", "overhead")]
        lower: Floats = np.maximum.reduce(np.broadcast_arrays(*overlappable))
        return lower

    @cached_property
    def upper_s(self) -> Floats:
        return sum(self.resources_s.values(), np.zeros(1))

    @property
    def low80_s(self) -> Floats:
        return np.minimum(np.maximum(self.lower_s, self._interval[0]), self.estimate_s)

    @property
    def high80_s(self) -> Floats:
        return np.minimum(self.upper_s, np.maximum(self._interval[1], self.estimate_s))

    @cached_property
    def _best(self) -> Floats:
        """Of the compute: its time at best over the estimated one."""
        low80, high80 = error_range(self.terms, self.efficiencies)
        best: Floats = np.exp(-ZBOUND / Z80 * np.maximum(-low80, high80))
        return best

    @cached_property
    def _interval(self) -> tuple[Floats, Floats]:
        """Ends of the 80 % interval, as the fit has them.  Where it may stall or not, it holds both."""
        low80, high80 = error_range(self.terms, self.efficiencies)
        smooth, stalled, chance = self.smooth_s, self.smooth_s + self.stall_s, self.stall_chance
        low = np.where(chance < 1.0 - TAIL, smooth, stalled) * np.exp(low80)
        high = np.where(chance > TAIL, stalled, smooth) * np.exp(high80)
        return low, high


#: Name of the overlap efficiency of a group of axes, where it is another.
_OVERLAP = {"expert_weights": "weights", "replica": "weights", "model": "tensor"}
#: The median of what stalls or does not is either; how sharply it goes from one to the other with the chance.
SHARP = 8.0


def combine(t: Terms, e: Efficiencies) -> Priced:
    """Price terms under efficiencies.  Cheap: a fit calls it thousands of times on the same terms."""
    chip, model, mesh, train = t.work.chip, t.work.model, t.work.mesh, t.work.training
    # Layer inputs on the host spare no FLOPs: what is made from them is computed again all the same.
    again = np.where(np.isin(train.remat, (REMAT.index("full"), REMAT.index("offload"))), 1.0, t.recomputed)
    scores_again = np.where(train.remat == REMAT.index("minimal"), 1.0, again)

    year = np.where(np.isnan(train.software_year), e.software_year, train.software_year)
    # Kernels of a generation improve most in their first year: older software counts as a year old.
    age = np.clip(year - e.software_year, -1.0, 1.0)
    speed = np.exp(np.asarray(e.software_per_year) * age)
    tall = t.rows / (t.rows + e.rows_half)
    # Times add up, so inverse efficiencies do: projections as wide as the heads, the MLP as wide as d_ff.  What a shard
    # loses falls with the square of its width: once it fills the chip with tiles, a wider one gains little.
    by_mlp = model.mlp_share * (1.0 + (e.width_half / t.mlp_narrow) ** 2)
    shape = tall / (by_mlp + (1.0 - model.mlp_share) * (1.0 + (e.width_half / t.heads_narrow) ** 2))
    expert_tall = t.expert_rows / (t.expert_rows + e.expert_rows_half)
    expert_wide = t.expert_narrow / (t.expert_narrow + e.expert_width_half)
    expert_shape = np.where(t.expert_rows > 0, expert_tall * expert_wide, 1.0)
    matmul = np.asarray(e.matmul) * shape
    dense = (t.dense_s + again * t.dense_forward_s) / matmul
    experts = (t.experts_s + again * t.experts_forward_s) / (np.asarray(e.matmul) * e.expert * expert_shape)
    scores = (t.scores_s + scores_again * t.scores_forward_s) * t.scores_padding / np.asarray(e.attention)
    scores = scores * t.narrow_heads ** np.asarray(e.narrow_heads)
    head = t.head_s / (np.asarray(e.matmul) * tall * e.head)
    # A product streams its weights from HBM as it computes: the slower of both determines the time (book 1.1.2), which
    # is the weights where a chip has few tokens.
    streamed = t.hbm_weights_s / np.asarray(e.hbm)
    with_weights = _slower(dense + experts + head, streamed)
    products = (with_weights + scores) / speed
    launches = (t.layer_passes * e.layer_s + t.moe_layer_passes * e.moe_layer_s) * (3.0 + again) / 3.0
    launches = launches / np.exp(np.asarray(e.launch_per_year) * age)

    # Norms, activation functions and the optimizer run beside no product; what fusion saves of them is not exposed.
    elementwise = (t.hbm_activations_s + again * t.hbm_recompute_s + t.hbm_optimizer_s) / np.asarray(e.hbm)
    softmax = (t.softmax_s + scores_again * t.softmax_forward_s) / np.asarray(e.hbm)
    hbm_exposed = (elementwise * e.hbm_exposed + softmax) / speed
    work = products + hbm_exposed

    stages = t.traffic["pipeline"]
    beside = np.where(stages.domains > 1, 1.0, 0.0)
    in_flight: dict[str, Floats] = {}
    hideable: dict[str, Floats] = {}
    across: Floats = np.zeros(1)
    for name, traffic in t.traffic.items():
        inside = traffic_s(traffic, e, beside)
        in_flight[f"ici:{name}"], hideable[f"ici:{name}"] = inside, inside * overlap(traffic, e)
        across = across + traffic.dcn_s / np.asarray(e.dcn)
    in_flight["dcn"], hideable["dcn"] = across, across * np.asarray(e.overlap_dcn)
    # What the schedule would hide must fit beside the compute; the rest sticks out, in proportion.
    cover = _slower(work, launches) / e.architecture
    hidden = np.minimum(1.0, cover / np.maximum(sum(hideable.values(), np.zeros(1)), 1e-30))
    exposed = {name: seconds - hidden * hideable[name] for name, seconds in in_flight.items()}

    # A host that launches kernels more slowly than the chip finishes them, collectives of the layers included,
    # determines the time; in between both show.
    in_layers = exposed["ici:model"] + exposed["ici:seq"] + exposed["ici:expert"]
    busy = _slower(work / e.architecture + in_layers, launches / e.architecture) - in_layers
    waiting = busy - work
    hbm = np.minimum(streamed / speed + hbm_exposed, busy)
    exposed_comms = sum(exposed.values(), np.zeros(1))

    bubble = t.bubble * (busy + in_layers + exposed["ici:pipeline"])
    host = t.host_s * (1.0 - np.asarray(e.host_overlap))
    slow = np.asarray(e.straggler) * np.log2(np.maximum(chip.hosts, 1.0))
    slow = slow + np.asarray(e.slice_straggler) * np.log2(np.maximum(mesh.slices, 1.0))
    straggling = slow * (busy + exposed_comms + bubble)
    overhead = e.step_s + host + straggling
    smooth = busy + exposed_comms + bubble + overhead
    # A pipelined job that has a slow host loses time at every micro-batch; whether it has one, its size alone tells.
    # One whose memory is full loses about as much.
    stall = np.asarray(e.stall_s) * train.micro_batches * (1.0 - 1.0 / mesh.pipeline)
    quick_hosts = np.where(chip.hosts > 1, np.exp(-np.asarray(e.stall_per_host) * chip.hosts), 1.0)
    chance: Floats = np.zeros(1)
    if np.any(stall > 0):
        with np.errstate(divide="ignore"):
            full = special("ndtr", np.log(t.memory_share / e.full_at) / e.full_spread)
        chance = np.where((mesh.pipeline > 1) & (stall > 0), 1.0 - quick_hosts * (1.0 - full), 0.0)
        overhead = overhead + stall * chance**SHARP / (chance**SHARP + (1.0 - chance) ** SHARP)
    estimate = busy + exposed_comms + bubble + overhead

    parts = {"compute": products + waiting, "hbm": hbm_exposed, **exposed, "bubble": bubble, "overhead": overhead}
    return Priced(
        terms=t,
        efficiencies=e,
        estimate_s=estimate,
        parts_s=parts,
        waiting_s=busy - work / e.architecture,
        hbm_s=hbm,
        in_flight_s=in_flight,
        exposed_comms_s=exposed_comms,
        smooth_s=smooth,
        stall_s=stall,
        stall_chance=chance,
        again=again,
        scores_again=scores_again,
    )


def traffic_s(traffic: Traffic, e: Efficiencies, beside: Floats) -> Floats:
    """Time of one kind of communication on links and network inside a slice, hidden or not.

    beside: 1 where pipeline stages talk over the network meanwhile.
    """
    moving = np.maximum(traffic.ici_s / np.asarray(e.link), traffic.network_s / np.asarray(e.network))
    if traffic.group == "pipeline":
        return np.asarray(moving)
    beyond = np.maximum(traffic.domains - 1.0, 0.0) ** np.asarray(e.network_power)
    call = np.where(traffic.ranks > 1, e.message_s + e.network_message_s * beyond, 0.0)
    if traffic.group == "model":
        call = call + np.where(traffic.ranks > 1, beside * e.beside_pipeline_s * traffic.ranks, 0.0)
    each = moving + traffic.calls * call
    after = moving + np.asarray(e.reduce_s) * np.log2(np.maximum(traffic.ranks, 1.0))
    return np.asarray(np.where(traffic.sharded > 0, after, np.where(traffic.reduced > 0, moving, each)))


def overlap(traffic: Traffic, e: Efficiencies) -> Floats:
    """Share of one kind of communication that the schedule can hide."""
    share = np.asarray(getattr(e, f"overlap_{_OVERLAP.get(traffic.group, traffic.group)}"))
    return np.where(traffic.reduced > 0, np.asarray(e.overlap_reduce), share) * (1.0 - traffic.serial)


def _slower(one: Floats, other: Floats) -> Floats:
    """Time of two that work side by side: the larger, and somewhat more where they are alike.  Of the exponents, 1 adds
    both, infinity takes the larger; 3 is between."""
    return np.asarray(np.cbrt(one * one * one + other * other * other))


def error_range(t: Terms, e: Efficiencies) -> tuple[Floats, Floats]:
    """Logarithms of the ends of the 80 % interval over the estimate."""

    def chosen(side: str) -> Floats:
        plain, pipelined, mixture = (np.asarray(getattr(e, f"{side}80_{name}")) for name in CLASSES)
        return np.where(t.experts_s > 0, mixture, np.where(t.work.mesh.pipeline > 1, pipelined, plain))

    return chosen("low"), chosen("high")
