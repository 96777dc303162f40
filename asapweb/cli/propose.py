"""`asap propose`: three ranked configurations for the run of a profile, or one of the user's own, priced."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import formatting
from asapweb.cli.arguments import PROFILE_FILES
from asapweb.cli.contradictions import print_contradictions
from asapweb.user_error import UserError
from diagnosis.analyzer import diagnose
from experiments.ingest import read_profile
from formatting.numbers import whole_number
from perfmodel.config import ExperimentConfig, flat_sizes
from perfmodel.config_file import parse_mesh_argument, read_config
from proposals.candidate import Candidate
from proposals.constraints import Constraints
from proposals.plan import Citation
from proposals.proposer import Pricer, propose
from proposals.proposer.observed import start
from proposals.proposer.words import verdict_words


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "propose", help="propose three ranked configurations with predicted step time and reasons"
    )
    parser.add_argument(
        "profiles",
        nargs="*",
        metavar="PROFILE",
        help=f"{PROFILE_FILES}; without one, proposals are based on the configuration's measured step time, or on the "
        "performance model alone",
    )
    parser.add_argument("--config", required=True, help="the run's configuration, JSON or YAML")
    asked = parser.add_argument_group("constraints on every proposal")
    asked.add_argument("--keep-batch", action="store_true", help="keep the global batch")
    asked.add_argument("--keep-remat", action="store_true", help="keep rematerialisation")
    asked.add_argument("--keep-weight-sharding", action="store_true", help="keep the weight sharding")
    asked.add_argument("--keep-micro-batches", action="store_true", help="keep the number of micro-batches")
    asked.add_argument("--no-flags", action="store_true", help="do not change XLA flags")
    asked.add_argument("--keep-axis", action="append", default=[], metavar="AXIS", help="keep the size of the axis")
    asked.add_argument("--fix", action="append", default=[], metavar="AXIS=SIZE", help="pin the axis to this size")
    asked.add_argument("--at-most", action="append", default=[], metavar="AXIS=SIZE", help="upper bound of the axis")
    asked.add_argument("--at-least", action="append", default=[], metavar="AXIS=SIZE", help="lower bound of the axis")
    asked.add_argument(
        "--memory-margin", type=float, default=0.0, metavar="SHARE", help="share of memory to keep free, e.g. 0.1"
    )
    asked.add_argument(
        "--exclude", action="append", default=[], metavar="MESH", help="exclude this mesh, e.g. data=8,model=2"
    )
    own = parser.add_argument_group("a custom configuration, evaluated instead of proposing three")
    own.add_argument("--mesh", metavar="MESH", help="its mesh, e.g. data=8,seq=16,model=2 (across slices: dcn.data=2)")
    own.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a training setting, e.g. remat=minimal"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The contract's object; with `--mesh` or `--set`, `evaluation` in place of `proposals`.

    Raises ConfigError or IngestError with the sentence to print.
    """
    config, warnings = read_config(Path(args.config))
    constraints = _constraints(args, config)
    own, changes = args.mesh is not None or bool(args.set), dict(_pair("--set", text) for text in args.set)
    mesh = parse_mesh_argument(args.mesh, config.mesh.axis_roles) if args.mesh is not None else config.mesh
    profile = read_profile(args.profiles) if args.profiles else start(config)
    diagnosis = diagnose(profile, config)
    if diagnosis.not_modelled:
        answer: dict[str, Any] = propose(profile, config, diagnosis).to_json(diagnosis)
    elif own:
        pricer = Pricer(profile, config, diagnosis)
        evaluation = pricer.evaluate(Candidate(mesh.to_json(), changes), constraints)
        answer = {"diagnosis": diagnosis.to_json(), "evaluation": evaluation.to_json()}
    else:
        answer = propose(profile, config, diagnosis, constraints=constraints).to_json(diagnosis)
    answer["warnings"] = list(warnings)
    against = print_contradictions(profile, config, args.config) if args.profiles else ()
    answer["contradictions"] = [item.to_json() for item in against]
    return answer


def _constraints(args: argparse.Namespace, config: ExperimentConfig) -> Constraints:
    return Constraints.from_json(
        {
            **{key: getattr(args, key) for key in ("keep_batch", "keep_remat", "keep_weight_sharding")},
            **{key: getattr(args, key) for key in ("keep_micro_batches", "no_flags", "memory_margin")},
            "keep_axes": args.keep_axis,
            "fixed": dict(_pair("--fix", text) for text in args.fix),
            "at_most": dict(_pair("--at-most", text) for text in args.at_most),
            "at_least": dict(_pair("--at-least", text) for text in args.at_least),
            "excluded": [parse_mesh_argument(text, config.mesh.axis_roles).to_json() for text in args.exclude],
        }
    )


def _pair(option: str, text: str) -> tuple[str, int | str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UserError(f"{option}: {text!r} is not of the form NAME=VALUE")
    number = whole_number(value)
    return name, value if number is None else number


def as_text(result: dict[str, Any]) -> str:
    """The verdict, then each proposal with its numbers and reasons."""
    verdict = result["diagnosis"]["bottleneck"]
    words = verdict_words(verdict["primary"])
    lines = [f"{words[0].upper()}{words[1:]}: {verdict['statement']}"]
    if "evaluation" in result:
        lines += ["", *_one(result["evaluation"], result["evaluation"]["title"])]
    kept = False
    for item in result.get("proposals", ()):
        if kept and item["kind"] == "keep":
            continue  # the slots that are left say the same
        kept = kept or item["kind"] == "keep"
        lines += ["", *_one(item, f"{item['rank']}. {item['title']} ({item['kind']})")]
    if result.get("not_modelled"):
        lines += ["", result["not_modelled"]]
    elif "proposals" in result:
        asked = Constraints.from_json(result["constraints"]).describe()
        lines += ["", *(f"Constraint: {text}" for text in asked), *result["notes"]]
        listed = len(result["rejected"])
        lines.append(
            f"{result['considered']} meshes considered, {result['priced']} legal configurations priced, "
            f"{formatting.counted(listed, 'mesh')} rejected (--json lists them)."
        )
    lines += [f"Note: {text}" for text in result["warnings"]]
    return "\n".join(lines)


def _one(item: dict[str, Any], title: str) -> list[str]:
    sizes = {axis: size for axis, size in flat_sizes(item["mesh"]).items() if size > 1 or "." not in axis}
    lines = [title, "   mesh " + " ".join(f"{axis}={size}" for axis, size in sizes.items())]
    if item["changes"]:
        lines.append("   changes " + ", ".join(f"{key}={value}" for key, value in item["changes"].items()))
    lines += [f"   ! {rule['rule']}: {rule['reason']}" for rule in item["violations"]]
    keeps = item["kind"] == "keep" or (item["kind"] == "own" and item["title"] == "Keep the current configuration")
    what = "that no change gains 1 % or more" if keeps else "that the step gets faster per token"
    lines.append(f"   confidence {formatting.chance(item['confidence'])} {what}")
    lines += [f"   {text}" for text in (item["reasoning"], *item["expected_impact"])]
    lines += [f"   - {text}" for text in item["trade_offs"]]
    return lines + [_cited(cite) for cite in item["citations"]]


def _cited(cite: dict[str, Any]) -> str:
    for_what = f" ({cite['supports']})" if cite["supports"] else ""
    return f"   [{Citation(**cite).place}] {cite['title']}{for_what}"
