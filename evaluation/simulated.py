"""One training step of a decoder in a simulated world, op by op."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, prod

from evaluation.simulated_cluster import Cluster, Kernel, World
from perfmodel.config import ExperimentConfig, micro_batches

_FORWARD = "jvp(loss)/layer"
_BACKWARD = "transpose(jvp(loss))/layer"
_AGAIN = "transpose(jvp(loss))/checkpoint/rematted_computation/layer"


@dataclass
class Row:
    """One op, summed over its occurrences in a step.  seconds: self time; in_flight_s: of a collective, from start to
    end; kernel: of one occurrence, None for a collective."""

    stem: str
    category: str
    path: str
    count: int
    seconds: float
    kernel: Kernel | None = None
    line: str = ""
    in_flight_s: float = 0.0


@dataclass
class SimulatedStep:
    """A step: its rows, and what no op shows.  busy_s: work and exposed transfers; stalls by `idle`, `host`,
    `input`."""

    rows: list[Row] = field(default_factory=list)
    stalls: dict[str, float] = field(default_factory=dict)

    @property
    def busy_s(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def step_s(self) -> float:
        return self.busy_s + sum(self.stalls.values())


class _Layout:
    """Lays the step out.  Times are per step and chip of the stage that determines the time."""

    def __init__(self, config: ExperimentConfig, world: World) -> None:
        training = config.training
        assert config.model is not None and training.global_batch is not None and training.seq_len is not None
        self.config, self.world, self.model, self.mesh = config, world, config.model, config.mesh
        self.cluster = Cluster(world, config.hardware, config.mesh, config.training.precision)
        mesh = config.mesh
        self.tensor, self.parts, self.stages = mesh.size("model"), mesh.size("seq"), mesh.size("pipeline")
        self.experts = mesh.size("expert")
        self.micro = max(1, round(micro_batches(training, mesh)))
        shards = mesh.token_shards
        self.tokens = training.global_batch * training.seq_len / shards / self.micro
        self.layers = ceil(self.model.layers / self.stages)
        self.again = training.remat in ("full", "offload")
        self.axes = {
            role: tuple(axis for axis, _ in mesh.ici if mesh.role(axis) in roles)
            for role, roles in {
                "weights": ("data", "fsdp", "seq", "expert"),
                "expert_weights": ("data", "fsdp", "seq"),
                "replica": ("replica",),
                "tensor": ("model",),
                "seq": ("seq",),
                "expert": ("expert",),
                "pipeline": ("pipeline",),
            }.items()
        }
        self.step = SimulatedStep()
        self.pending: list[tuple[str, str, tuple[str, ...], str, float, float, int]] = []

    # Work on the chip
    def work(self, stem: str, category: str, path: str, kernel: Kernel, count: float, line: str = "") -> float:
        times = round(count)
        self.step.rows.append(Row(stem, category, path, times, kernel.seconds * times, kernel, line))
        return kernel.seconds * times

    def product(self, path: str, m: float, k: float, n: float, count: float, slowdown: float = 1.0) -> float:
        kernel = self.cluster.product(m, k, n)
        kernel = replace(kernel, seconds=kernel.seconds * slowdown)
        m, k, n = (max(1, round(size)) for size in (m, k, n))
        line = f"%f = bf16[{m},{n}]{{1,0}} fusion(bf16[{m},{k}]{{1,0}} %x, bf16[{k},{n}]{{1,0}} %w), kind=kOutput"
        return self.work("fusion", "convolution fusion", f"{path}/dot_general", kernel, count, line)

    def products(
        self, path: str, name: str, m: float, k: float, n: float, count: float, back: bool, slow: float = 1.0
    ) -> float:
        if not back:
            return self.product(f"{path}/{name}", m, k, n, count, slow)
        return self.product(f"{path}/{name}", m, n, k, count, slow) + self.product(
            f"{path}/{name}", k, m, n, count, slow
        )

    def run(self) -> SimulatedStep:
        count = float(self.layers * self.micro)
        for path in (_FORWARD, _BACKWARD, *((_AGAIN,) if self.again else ())):
            self._layer(path, count)
        self._vocabulary()
        self._optimizer()
        self._between_stages()
        self._stalls()
        return self.step

    def _layer(self, path: str, count: float) -> None:
        m, w, back = self.model, self.world, path == _BACKWARD
        q, kv = m.heads * m.head_dim / self.tensor, m.kv_heads * m.head_dim / self.tensor
        rows, width = self.tokens, m.d_ff / self.tensor
        covering = self.products(path, "attention/q", rows, m.d_model, q, count, back)
        covering += self.products(path, "attention/kv", rows, m.d_model, 2 * kv, count, back)
        covering += self.products(path, "attention/out", rows, q, m.d_model, count, back)
        keys = float(self.config.training.seq_len or 1)
        kernel = self.cluster.scores(rows, keys, q, self.parts, back)
        covering += self.work("flash_attention", "custom-call", f"{path}/attention/pallas_call", kernel, count)
        again = 1.0 if not m.experts else 0.0
        gated = 2 if m.mlp == "gated" else 1
        dense = count * again
        if dense:
            for _ in range(gated):
                covering += self.products(path, "mlp/up", rows, m.d_model, width, dense, back)
            if path != _AGAIN:  # nobody needs the last product again
                covering += self.products(path, "mlp/down", rows, width, m.d_model, dense, back)
        else:
            covering += self._experts(path, count, back)
        times = 2.0 if back else 1.0
        wide = w.passes * rows * m.d_model / (1.0 if w.replicated_norms else self.tensor)
        inner = m.d_ff_expert * m.experts_per_token if m.experts else m.d_ff
        for name, moved in (
            ("norm", 0.5 * wide),
            ("attention/rope", 0.5 * wide),
            ("mlp/act", w.act_passes * rows * inner / self.tensor),
        ):
            kernel = self.cluster.pass_over(2.0 * moved * times)
            covering += self.work("fusion", "loop fusion", f"{path}/{name}/mul", kernel, count)
        self._layer_transfers(path, count, back, covering)

    def _experts(self, path: str, count: float, back: bool) -> float:
        m = self.model
        held = m.experts / self.experts
        per_expert = self.tokens * self.experts * m.experts_per_token / m.experts
        fullest = 1.0 + self.world.imbalance / held**0.5 if self.experts > 1 else 1.0
        width = (m.d_ff_expert or m.d_ff) / self.tensor
        spent = 0.0
        for name, k, n, number in (("gate_up", m.d_model, width, 2.0), ("down", width, m.d_model, 1.0)):
            spent += self.products(path, f"moe/{name}", per_expert, k, n, count * held * number, back, fullest)
        if self.experts > 1:  # the mean expert finishes earlier and waits in the exchange
            for row in self.step.rows:
                if row.path.startswith(f"{path}/moe/"):
                    row.seconds /= fullest
            self.waiting = spent * (1.0 - 1.0 / fullest)
        return spent / fullest

    def _layer_transfers(self, path: str, count: float, back: bool, covering: float) -> None:
        m, w = self.model, self.world
        room = w.cover * covering
        mlp = (3.0 if m.mlp == "gated" else 2.0) * m.d_model * m.d_ff if not m.experts else 0.0
        attention = 2.0 * m.d_model * m.head_dim * (m.heads + m.kv_heads)
        weights = (mlp + attention) / self.tensor * 2.0
        if self.config.training.weight_sharding == "fsdp":
            room = self.transfer(
                "all-gather", "weights", f"{path}/mlp/all_gather", weights, count, w.hidden_weights, room
            )
            if back:
                room = self.transfer(
                    "reduce-scatter", "weights", f"{path}/mlp/psum_scatter", weights, count, w.hidden_weights, room
                )
            if m.experts:
                held = 3.0 * m.d_model * (m.d_ff_expert or m.d_ff) * m.experts / self.experts / self.tensor * 2.0
                room = self.transfer(
                    "all-gather", "expert_weights", f"{path}/moe/all_gather", held, count, w.hidden_weights, room
                )
                if back:
                    room = self.transfer(
                        "reduce-scatter",
                        "expert_weights",
                        f"{path}/moe/psum_scatter",
                        held,
                        count,
                        w.hidden_weights,
                        room,
                    )
        elif back:
            once = count / self.micro
            held = (
                3.0 * m.d_model * (m.d_ff_expert or m.d_ff) * m.experts / self.experts / self.tensor * 2.0
                if m.experts
                else 0.0
            )
            room = (
                self.transfer(
                    "all-reduce", "weights", f"{path}/mlp/psum", weights, once, w.hidden_weights, room / self.micro
                )
                * self.micro
            )
            room = (
                self.transfer(
                    "all-reduce", "expert_weights", f"{path}/moe/psum", held, once, w.hidden_weights, room / self.micro
                )
                * self.micro
            )
        keys_values = 4.0 * self.tokens * self.parts * m.kv_heads * m.head_dim / self.tensor
        room = self.transfer(
            "all-gather", "seq", f"{path}/attention/all_gather", keys_values, count, w.hidden_seq, room
        )
        if back:
            room = self.transfer(
                "reduce-scatter", "seq", f"{path}/attention/psum_scatter", keys_values, count, w.hidden_seq, room
            )
        activations = 2.0 * self.tokens * m.d_model
        rounds = 2.0 if path != _AGAIN else 1.0
        for kind, name in (("all-gather", "all_gather"), ("reduce-scatter", "psum_scatter")):
            room = self.transfer(
                kind, "tensor", f"{path}/mlp/{name}", activations, rounds * count, w.hidden_tensor, room
            )
        if m.experts:
            routed = activations * m.experts_per_token / self.tensor
            extra = getattr(self, "waiting", 0.0)
            room = self.transfer(
                "all-to-all",
                "expert",
                f"{path}/moe/dispatch/all_to_all",
                routed,
                2.0 * count,
                w.hidden_expert,
                room,
                extra,
            )
        if w.reshard and self.parts > 1 and self.tensor > 1:
            moved = w.reshard * activations
            if w.reshard_kind == "copy":
                kernel = self.cluster.pass_over(8.0 * moved)
                self.work("copy", "data formatting", f"{path}/attention/transpose", kernel, count)
            else:
                self.transfer("all-to-all", "seq", f"{path}/mlp/sharding_constraint", 4.0 * moved, count, 0.0, 0.0)

    def transfer(
        self,
        kind: str,
        group: str,
        path: str,
        payload: float,
        count: float,
        hidden: float,
        room: float,
        extra: float = 0.0,
    ) -> float:
        """Enters a collective; returns what is left of the work that can cover transfers."""
        names = self.axes[group]
        one = self.cluster.transfer_s(kind, names, payload)
        if one <= 0 or count <= 0:
            return room
        total = one * count
        covered = min(hidden * total, room)
        self._collective(kind, names, path, payload, round(count), total - covered + extra, total + extra, hidden > 0)
        return room - covered

    def _collective(
        self,
        kind: str,
        names: tuple[str, ...],
        path: str,
        payload: float,
        count: int,
        exposed: float,
        flight: float,
        apart: bool,
    ) -> None:
        axes = tuple(axis for axis, size in self.mesh.ici if axis in names and size > 1)
        over_dcn = names == ("dcn",)
        size = prod(dict(self.mesh.ici)[axis] for axis in axes) if not over_dcn else self.mesh.dcn_product
        elements = max(1, round(payload / 2.0))
        result, operand = elements, elements
        if kind == "all-gather":
            operand = max(1, elements // size)
        elif kind == "reduce-scatter":
            result = max(1, elements // size)
        groups = self._groups(axes, over_dcn) if kind != "collective-permute" else self._pairs(axes)
        text = f"bf16[{result}]{{0}}|{kind}|bf16[{operand}]{{0}}|{groups}"
        stem = f"{kind}-start" if apart and kind != "all-to-all" else kind
        self.step.rows.append(Row(stem, kind, path, count, exposed, None, text, flight))

    def _groups(self, names: tuple[str, ...], over_dcn: bool) -> str:
        axes = [("", size) for _, size in self.mesh.dcn] + list(self.mesh.ici)
        chosen = [
            i for i, (name, _) in enumerate(axes) if (name in names and not over_dcn) or (over_dcn and name == "")
        ]
        order = [i for i in range(len(axes)) if i not in chosen] + chosen
        size, total = prod(axes[i][1] for i in chosen), prod(n for _, n in axes)
        dims = ",".join(str(n) for _, n in axes)
        turn = f"T({','.join(map(str, order))})" if order != list(range(len(axes))) else ""
        return f"replica_groups=[{total // size},{size}]<=[{dims}]{turn}"

    def _pairs(self, names: tuple[str, ...]) -> str:
        """Neighbours along one axis."""
        sizes = [size for _, size in self.mesh.ici]
        at = [axis for axis, _ in self.mesh.ici].index(names[0])
        stride, chips = prod(sizes[at + 1 :]), prod(sizes)
        pairs = [f"{{{i},{i + stride}}}" for i in range(chips) if i // stride % sizes[at] < sizes[at] - 1]
        return f"source_target_pairs={{{','.join(pairs)}}}"

    def _vocabulary(self) -> None:
        m, path = self.model, "jvp(loss)/logits"
        # The last stage has it; other stages wait for it only where it is not outweighed by fewer layers.
        share = 1.0 if self.stages == 1 else 0.3
        times = self.micro * share
        covering = self.products(path, "head", self.tokens, m.d_model, m.vocab / self.tensor, max(1.0, times), False)
        covering += self.products(
            "transpose(jvp(loss))/logits", "head", self.tokens, m.d_model, m.vocab / self.tensor, max(1.0, times), True
        )
        moved = 12.0 * self.tokens * m.vocab / self.tensor
        self.work("fusion", "loop fusion", f"{path}/softmax/exp", self.cluster.pass_over(moved), max(1.0, times))

    def _optimizer(self) -> None:
        m, w, training = self.model, self.world, self.config.training
        mlp = (3.0 if m.mlp == "gated" else 2.0) * m.d_model * m.d_ff if not m.experts else 0.0
        layer = mlp + 2.0 * m.d_model * m.head_dim * (m.heads + m.kv_heads)
        experts = 3.0 * m.d_model * (m.d_ff_expert or m.d_ff) * m.experts / self.experts if m.experts else 0.0
        held = ((layer + experts) * self.layers + m.vocab * m.d_model) / self.tensor
        shards = prod(size for axis, size in self.mesh.ici if axis in self.axes["weights"])
        owned = held / (shards if training.weight_sharding in ("fsdp", "zero1") else 1)
        self.work("fusion", "loop fusion", "adamw/mul", self.cluster.pass_over(28.0 * owned), 1.0)
        if self.micro > 1:
            self.work(
                "fusion", "loop fusion", f"{_BACKWARD}/add", self.cluster.pass_over(10.0 * held), float(self.micro - 1)
            )
        replicas = self.mesh.size("replica")
        if replicas > 1:
            self.transfer(
                "all-reduce", "replica", f"{_BACKWARD}/psum", 2.0 * owned, 1.0, w.hidden_weights, self.step.busy_s * 0.3
            )
        slices = self.mesh.dcn_product
        if slices > 1:
            total = self.cluster.across_s(slices, 2.0 * owned)
            exposed = total - min(w.hidden_dcn * total, 0.5 * w.cover * self.step.busy_s)
            self._collective("all-reduce", ("dcn",), f"{_BACKWARD}/mlp/psum", 2.0 * owned, 1, exposed, total, True)

    def _between_stages(self) -> None:
        if self.stages == 1:
            return
        boundary = 2.0 * self.tokens * self.model.d_model / self.tensor
        count = 2.0 * self.micro * max(1, self.config.training.virtual_stages)
        self.transfer(
            "collective-permute",
            "pipeline",
            "jvp(loss)/pipeline/ppermute",
            boundary,
            count,
            self.world.hidden_pipeline,
            self.step.busy_s,
        )

    def _stalls(self) -> None:
        w, step = self.world, self.step
        longest = max((row for row in step.rows if row.kernel is None), key=lambda row: row.seconds, default=None)
        busy = step.busy_s
        if longest is not None:  # everyone waits for the slowest core in a collective
            longest.seconds += w.straggle * busy
            longest.in_flight_s += w.straggle * busy
            busy *= 1.0 + w.straggle
        virtual = max(1, self.config.training.virtual_stages)
        bubble = busy * (self.stages - 1) / (self.micro * virtual)
        kernels = sum(row.count for row in step.rows if row.kernel is not None)
        launching = max(0.0, w.host_launch_s * kernels - busy)
        step.stalls = {"idle": bubble + launching, "host": w.gap_s, "input": 0.0}


def simulate(config: ExperimentConfig, world: World, input_s: float = 0.0) -> SimulatedStep:
    """The step of a configuration.  input_s: what its input pipeline takes per step."""
    step = _Layout(config, world).run()
    rest = step.step_s
    step.stalls["input"] = max(0.0, input_s - rest) if world.prefetch else input_s
    return step
