"""The computations: for each the tools that it calls, its words in the palette, and what to ask next.

`TABLE` is where to start; `templates/answers/<key>.md` prints the results by the names that `calls` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from agent.tools import Arguments, NoArguments, ToolError
from perfmodel.workload import REMAT, SHARDING
from proposals.agents.settings import axis_of
from proposals.agents.tools.documented import FlagArguments
from proposals.agents.tools.hardware import OtherHardware
from proposals.agents.tools.known import OnChip, Other, Records
from proposals.agents.tools.look import Look
from proposals.agents.tools.operations import Filter
from proposals.agents.tools.prices import PriceArguments, SearchArguments
from proposals.agents.tools.shared import Configuration, arguments_of, mesh_of
from proposals.agents.workbench import Workbench
from proposals.candidate import Candidate

#: What a question is about; the place on a page that carries it.
About = Literal["run", "finding", "proposal", "proposals", "configuration", "ops", "op"]
#: A computation with its arguments.
Next = tuple[str, Mapping[str, Any]]


class OfFinding(Arguments):
    finding: int = Field(1, ge=1, description="Number of the finding, by potential saving.")


class OfProposal(Arguments):
    proposal: int = Field(1, ge=1, description="Number of the proposal.")


class TwoProposals(OfProposal):
    other: int = Field(0, ge=0, description="Number of another proposal; 0: the current configuration.")


class OfNumber(Arguments):
    number: str = Field("mfu", max_length=60, description="A key figure: step_time_s, mfu, duty_cycle, communication …")


class OfAxis(Arguments):
    axis: str = Field("", max_length=200, description="A mesh axis, or dcn; empty: all.")


class OfOp(Arguments):
    op: str = Field("#1", max_length=400, description="Name or key of an op, or #n for the n-th longest.")


class OfKey(Arguments):
    key: str = Field("remat", max_length=40, description="A training key, or a mesh axis.")


class OfSpending(Arguments):
    tokens: float = Field(1e12, gt=0, le=1e18, description="Tokens of the whole training run.")
    price_per_chip_hour: float | None = Field(None, gt=0, le=1e4, description="Per chip and hour, in dollars.")


@dataclass(frozen=True)
class Computation:
    """A question that tools answer.

    key: of its address, of its template and of its questions in asked.toml.  calls: the arguments of the tools, by the
    names of their results; all but the first may come to nothing.  then, more: what to ask next
    beside the questions of the same object.  bars: what is drawn.
    """

    key: str
    title: str
    about: About
    arguments: type[Arguments]
    calls: Callable[[Workbench, Any], Mapping[str, Arguments]]
    then: tuple[str, ...] = ()
    bars: Literal["", "step", "memory"] = ""
    more: Callable[[Workbench, Any, Mapping[str, Any]], Iterable[Next]] | None = None


def _looks(**parts: Any) -> Callable[[Workbench, Any], Mapping[str, Arguments]]:
    """Return the calls that look at parts of the run, whatever is asked."""
    return lambda _, asked: {
        name: part if isinstance(part, Arguments) else Look(part=part) for name, part in parts.items()
    }


def _of_finding(_: Workbench, asked: OfFinding) -> Mapping[str, Arguments]:
    return {"found": Look(part="findings", number=asked.finding), "proposals": Look(part="proposals"),
            "run": Look(part="breakdown")}  # fmt: skip


def _of_proposal(_: Workbench, asked: OfProposal) -> Mapping[str, Arguments]:
    return {"found": Look(part="proposals", number=asked.proposal)}


def _two(_: Workbench, asked: TwoProposals) -> Mapping[str, Arguments]:
    beside = {"proposals": (asked.proposal, asked.other)} if asked.other else {
        "proposals": (asked.proposal,), "configurations": (Configuration(),)}  # fmt: skip
    return {"found": PriceArguments.model_validate(beside)}


def _priced(_: Workbench, asked: Configuration) -> Mapping[str, Arguments]:
    return {"found": PriceArguments(configurations=(asked,), neighbours=True),
            "first": Look(part="proposals", number=1)}  # fmt: skip


def _vary(bench: Workbench, asked: OfKey) -> Mapping[str, Arguments]:
    config, key = bench.config, asked.key.lower()
    values: Iterable[Any] = {"remat": REMAT, "weight_sharding": SHARDING, "precision": ("bf16", "fp8")}.get(key, ())
    if key in ("global_batch", "seq_len", "grad_accum"):
        now = getattr(config.training, key)
        if not now:
            raise ToolError(f"training.{key} is unknown; add it to the configuration to vary it.")
        values = [n for n in (now // 4, now // 2, now, now * 2, now * 4) if n]
    if values:
        listed = tuple(Configuration(changes={key: value}) for value in values)
    elif name := axis_of(config.mesh, key):
        sizes = (n for n in (1, 2, 4, 8, 16, 32) if config.hardware.chips_per_slice % n == 0)
        listed = tuple(Configuration(mesh={name: n}) for n in sizes)
    else:
        raise ToolError(f"{asked.key!r} is neither a training key such as remat or global_batch nor a mesh axis.")
    return {"found": PriceArguments(configurations=listed)}


def _each(key: str, rows: Iterable[Any], bench: Workbench, most: int = 2) -> Iterator[Next]:
    """Yield a question about each of the first configurations."""
    for row in [row for row in rows if not getattr(row, "is_current", False)][:most]:
        yield key, arguments_of(bench.config, Candidate(mesh_of(row.mesh), row.changes))


def _after_finding(_: Workbench, asked: OfFinding, results: Mapping[str, Any]) -> Iterator[Next]:
    yield from (("why_proposal", {"proposal": number}) for number in results["found"].findings[0].addressed_by[:2])


def _after_comparing(bench: Workbench, asked: TwoProposals, _: Mapping[str, Any]) -> Iterator[Next]:
    ranks = [
        state.proposal.rank for state in bench.proposals if state.proposal.rank not in (asked.proposal, asked.other)
    ]
    yield from (("compare", {"proposal": asked.proposal, "other": rank}) for rank in ranks[:2])


def _after_pricing_around(bench: Workbench, _: Configuration, results: Mapping[str, Any]) -> Iterator[Next]:
    better = [step for step in results["found"].neighbours if not step.breaks and (step.over_this or 0) > 1.0]
    yield from _each("price", better, bench, 1)


def _after_op(_: Workbench, asked: OfOp, results: Mapping[str, Any]) -> Iterator[Next]:
    for row in results["found"].rows if results["found"] else ():
        yield "ops", {"words": row.module} if row.module else {}
        if row.axis:
            yield "axis", {"axis": row.axis}


def _peers(_: Workbench, asked: Other, results: Mapping[str, Any]) -> Iterator[Next]:
    peers = results["found"].experiments if results["found"] else ()
    yield from (("since_last", {"experiment": peer.id}) for peer in peers[:3])


_PROPOSALS = _looks(found=Look(part="proposals", full=True))
#: The questions that are asked most of a run, and those of its proposals.
OF_RUN = ("mfu", "parallelism", "sharding_or_input", "since_last", "other_chip", "fits")
OF_PROPOSALS = ("which_first", "how_confident", "others_promising", "still_confident")

TABLE = (
    Computation(
        "verdict", "What limits the step?", "run",
        NoArguments, _looks(found="verdict", run="breakdown"),
        ("why_finding", "sharding_or_input", "measure_next"), "step",
    ),
    Computation(
        "mfu", "Why is MFU low?", "run",
        NoArguments, _looks(found=OnChip(), kpis="kpis", run="breakdown"),
        ("verdict", "parallelism", "which_first"), "step",
    ),
    Computation(
        "parallelism", "Which parallelism fits this run?", "run",
        NoArguments, _looks(found=SearchArguments(each_mesh=True)), ("rejected", "which_first"), "step",
        lambda bench, _, results: _each("price", results["found"].candidates, bench),
    ),
    Computation(
        "flags", "Which XLA flags gain here?", "run",
        NoArguments, _looks(found=FlagArguments(text="")), ("which_first", "verdict"),
    ),
    Computation(
        "sharding_or_input", "Is it sharding, or input and host?", "run",
        NoArguments, _looks(run="breakdown"), ("axis", "parallelism", "steps"), "step",
    ),
    Computation(
        "since_last", "What changed since the last run?", "run",
        Other, lambda _, asked: {"found": asked if asked.experiment else Other(experiment=0)}, more=_peers,
    ),
    Computation(
        "other_chip", "Would another chip be faster?", "run",
        OtherHardware,
        lambda _, asked: {"found": asked if asked.chip else asked.model_copy(update={"chip": "all"}),
                          "run": Look(part="breakdown")},
        ("spending", "parallelism"), "step",
    ),
    Computation(
        "measure_next", "What to measure next?", "run",
        NoArguments, _looks(run="run", kpis="kpis", proposals="proposals"), ("steps", "still_confident", "which_first"),
    ),
    Computation(
        "figure", "Where does this number come from?", "run",
        OfNumber, lambda _, asked: {"found": Look(part="kpis", name=asked.number)}, ("verdict", "measure_next"),
    ),
    Computation(
        "steps", "How steady are the steps?", "run",
        NoArguments, _looks(found="steps"), ("measure_next", "verdict"),
    ),
    Computation(
        "spending", "What does a training run take?", "run",
        OfSpending, _looks(run="run", found="proposals"), ("which_first", "other_chip", "measure_next"),
    ),
    Computation(
        "why_finding", "Why this finding?", "finding",
        OfFinding, _of_finding,
    ),
    Computation(
        "from_what", "From what, and how sure?", "finding",
        OfFinding, _of_finding,
    ),
    Computation(
        "finding_ops", "Which ops?", "finding",
        OfFinding,
        lambda _, asked: {"found": Filter(finding=asked.finding, top=12)},
    ),
    Computation(
        "if_fixed", "What if this were fixed?", "finding",
        OfFinding, _of_finding, more=_after_finding,
    ),
    Computation(
        "why_proposal", "Why this one?", "proposal",
        OfProposal, _of_proposal, (), "step",
        lambda bench, _, results: _each("around", results["found"].proposals, bench),
    ),
    Computation(
        "confidence", "How sure, and what would lower it?", "proposal",
        OfProposal, _of_proposal, ("compare",),
    ),
    Computation(
        "compare", "Compare with another", "proposal",
        TwoProposals, _two, ("which_first",), "step", _after_comparing,
    ),
    Computation(
        "precedents", "Which precedents are closest?", "proposal",
        OfProposal, lambda _, asked: {"found": Records(like_proposal=asked.proposal, top=5)},
    ),
    Computation(
        "which_first", "Which first?", "proposals",
        NoArguments, _PROPOSALS, ("why_proposal",), "step",
    ),
    Computation(
        "how_confident", "How confident are you?", "proposals",
        NoArguments, _PROPOSALS, ("confidence",),
    ),
    Computation(
        "others_promising", "The other two look more promising", "proposals",
        NoArguments, _PROPOSALS, ("compare",), "step",
    ),
    Computation(
        "still_confident", "Still most confident without further input?", "proposals",
        NoArguments, _PROPOSALS, ("measure_next",),
    ),
    Computation(
        "rejected", "Which meshes were rejected, and by which rule?", "proposals",
        NoArguments, _looks(found=SearchArguments(rejected=True, top=20)), ("parallelism", "price"),
    ),
    Computation(
        "price", "Price this configuration", "configuration",
        Configuration, _priced, (), "step",
    ),
    Computation(
        "fits", "Does it fit in memory?", "configuration",
        Configuration, _priced, (), "memory",
    ),
    Computation(
        "why_not", "Why not this one?", "configuration",
        Configuration, _priced, (), "step",
    ),
    Computation(
        "around", "What would change it?", "configuration",
        Configuration, _priced, more=_after_pricing_around,
    ),
    Computation(
        "vary", "How does it change with one setting?", "configuration",
        OfKey, _vary, ("price", "parallelism"),
    ),
    Computation(
        "ops", "Which ops take the time?", "ops",
        Filter, lambda _, asked: {"found": asked}, ("verdict", "axis"),
    ),
    Computation(
        "op", "What limits this op?", "op",
        OfOp, lambda _, asked: {"found": Filter(op=asked.op)}, ("verdict",), more=_after_op,
    ),
    Computation(
        "axis", "How long do collectives take?", "ops",
        OfAxis, lambda _, asked: {"found": Look(part="collectives", name=asked.axis, full=True)},
        ("sharding_or_input", "parallelism"),
    ),
)  # fmt: skip
