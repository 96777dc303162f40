"""The pages Explore and Accuracy."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers

from accounts.models import Role
from accounts.permissions import MemberRequest, require
from asapweb.explore import answer as answers
from asapweb.explore import drawing, measured, report, spaces
from asapweb.explore.answer import Answer, Bar
from asapweb.explore.measured import evidence_of
from asapweb.explore.spaces import Meshes
from asapweb.explore.state import State, checked, from_config, read, searchable
from asapweb.explore.table import plot, table
from experiments import config_form
from experiments.models import Experiment
from experiments.pages import ExperimentPage, experiment_page
from experiments.services import configuration as configurations
from perfmodel.catalogue import model_names, model_to_json, read_model
from perfmodel.chips import load_chips
from perfmodel.config import ConfigError, missing_facts
from perfmodel.config_file import OPTIMIZERS
from perfmodel.price import NOTHING, Evidence, predict
from perfmodel.reading import Complaints, parse_text
from perfmodel.space import count_factorisations, divisors
from proposals.drawing import memory_bar
from proposals.facts import in_words

#: Text longer than this is no config.json.
MAX_PASTED = 200_000


@require(Role.VIEWER, "GET")
def explore(request: MemberRequest) -> HttpResponse:
    """The model's answer to the state in the address; by htmx only the part that changes."""
    state = read(request.GET)
    page = experiment_page(request, state.experiment) if state.experiment else None
    known = evidence_of(page) if page is not None else NOTHING
    evidence = NOTHING if state.model_alone else known
    state, meshes, sentence = _meshes(state, evidence)
    part = request.headers.get("HX-Target", "") if request.htmx else ""
    context: dict[str, Any] = {"state": state, "here": "explore", "meshes_sentence": sentence}
    context |= _table(state, meshes)
    if part == "meshes":
        return _answered(request, render(request, "explore/_meshes.html", context), state)
    context |= _context(state, meshes, page, evidence)
    if known.config is not None:
        context["evidence"] = evidence
        context["other_evidence"] = known if state.model_alone else NOTHING
        context["other_query"] = replace(state, model_alone=not state.model_alone).query()
    if page is not None:
        context = page.context("explore", **context)
    if part == "answer":
        context["live"] = "moved" in request.GET
        return _answered(request, render(request, "explore/_partial.html", context), state)
    response = render(request, "explore/explore.html", context)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _answered(request: MemberRequest, response: HttpResponse, state: State) -> HttpResponse:
    """A part; a choice that was made (not a slider on its way) becomes an address of its own."""
    address = f"{reverse('explore')}?{state.query()}"
    if request.headers.get("X-Commit") and request.headers.get("HX-Current-URL", "").partition("?")[2] != state.query():
        response["HX-Push-Url"] = address
    response["Cache-Control"] = "no-store"
    patch_vary_headers(response, ["HX-Request"])
    return response


def _meshes(state: State, evidence: Evidence = NOTHING) -> tuple[State, Meshes | None, str]:
    """All meshes of the state, or a sentence that says why they cannot be listed.  A state without a mesh gets one."""
    config = searchable(state)
    if config is None:
        return state, None, "The meshes can be listed once hardware and model are valid."
    lacking = missing_facts(config)
    if lacking:
        return state, None, f"To price all meshes, set {in_words(lacking)}."
    axes = len(config.mesh.ici)
    count = count_factorisations(config.hardware.chips_per_slice, axes)
    if count > spaces.LIMIT:
        sentence = f"{count:,} meshes over {axes} axes are too many to price interactively; remove an axis."
        return state, None, sentence
    try:
        meshes = spaces.meshes_of(config, evidence)
    except ConfigError as error:
        return state, None, f"{error}."
    if state.automatic and len(meshes.ranked):
        state = checked(state.on(meshes.sizes(int(meshes.ranked[0]))))
    return state, meshes, ""


def _table(state: State, meshes: Meshes | None) -> dict[str, Any]:
    if meshes is None:
        return {"table": None}
    if not len(meshes.ranked) and state.show == "legal":
        state = replace(state, show="rejected")
    return {"table": table(state, meshes), "meshes": meshes, "show": state.show, "sort": state.sort}


def _context(
    state: State, meshes: Meshes | None, page: ExperimentPage | None, evidence: Evidence = NOTHING
) -> dict[str, Any]:
    answer, refusal = _answer(state, evidence)
    base = measured.baseline(page, state.config) if page is not None else None
    bars = _bars(answer, meshes, base)
    values = [bar.time["upper"] if bar.time and "upper" in bar.time else bar.total_s for bar in bars]
    scale_s = max(values, default=0.0)
    return {
        "found": answer,
        "memory_bar": memory_bar(answer.memory) if answer is not None and answer.memory is not None else "",
        "refusal": refusal,
        "bars": [(bar, drawing.bounds_bar(bar.time, scale_s) if bar.time else "") for bar in bars],
        "scale_s": scale_s,
        "speedup": _speedup(page, answer),
        "optico": report.read(report.ACCURACY_FILE)["optico"],
        "plot": plot(state, meshes) if meshes is not None else None,
        "controls": _controls(state),
        "errors": config_form.errors_by_slot(state.errors),
        "slots": sorted(slot for slot in config_form.SLOTS | {"form"} if not slot.startswith("measured-")),
        "product": config_form.product_check(state.data),
        "query": state.query(),
        "handed_over": urlencode({"config": json.dumps(state.data)}),
    }


def _answer(state: State, evidence: Evidence) -> tuple[Answer | None, str]:
    if state.config is None:
        return None, ""
    try:
        return answers.answer(state.config, evidence), ""
    except ConfigError as error:
        return None, f"{error}."


def _speedup(page: ExperimentPage | None, answer: Answer | None) -> float | None:
    """Tokens per second against the measured run's; None where either is not known."""
    if page is None or answer is None or not answer.prediction.tokens_per_s_per_chip:
        return None
    experiment = page.experiment
    before = configurations.load(experiment)
    tokens = before.training.global_batch_tokens if before is not None else None
    if before is None or not tokens or not experiment.step_time_s:
        return None
    now = answer.prediction.tokens_per_s_per_chip * answer.config.hardware.chips
    return now / (tokens / experiment.step_time_s)


def _bars(answer: Answer | None, meshes: Meshes | None, base: Bar | None) -> list[Bar]:
    """The measured step where there is one, this mesh, and the fastest legal one where that is another."""
    if answer is None:
        return []
    yours = answers.bar("This mesh", answer.config, answer.prediction)
    if yours is None:
        return []
    bars = [bar for bar in (base, None if base and answer.is_measured else yours) if bar is not None]
    if meshes is not None and len(meshes.ranked):
        best = int(meshes.ranked[0])
        if best != meshes.space.row_of(answer.config.mesh):
            config = meshes.config(best)
            fastest = answers.bar("Fastest legal", config, predict(config, meshes.evidence))
            bars += [fastest] if fastest is not None else []
    return bars


def _controls(state: State) -> dict[str, Any]:
    """What the form shows: fields, and for each axis its size and the sizes its slider stops at."""
    fields = config_form.fields_from(state.data)
    fields["topology"] = fields["topology"].replace(" × ", "×")
    total = state.total
    stops: dict[str, list[int]] = {}
    if total is not None:
        every = divisors(total)
        stops = {axis: sorted({*every, size if size in every else 1}) for axis, size in state.sizes.items()}
    overrides = state.data.get("hardware", {}).get("overrides", {})
    software = {key: value for key, value in state.data.get("software", {}).items() if key != "framework"}
    return {
        "fields": fields,
        "axes": [(field, stops.get(field.name, [])) for field in fields["ici"]],
        "axis_names": " ".join(state.sizes),
        "dcn": fields["dcn"],
        "shape_name": (state.data.get("model") or {}).get("name", "") if fields["model"] == config_form.CUSTOM else "",
        "form": config_form,
        "models": model_names(),
        "chips": list(load_chips()),
        "optimizers": OPTIMIZERS,
        "frameworks": config_form.frameworks(),
        "framework_offered": config_form.is_offered(str(fields["framework"])),
        "total": total,
        "has_roles": any(field.role for field in fields["ici"]),
        "hidden": [(f"override_{key}", value) for key, value in overrides.items()]
        + [(f"software_{key}", value) for key, value in software.items()],
        "overrides": overrides,
        "software": software,
        "script": {
            "sizes": state.sizes,
            "stops": stops,
            "query": state.query(),
            "total": total,
            "product": config_form.product_check(state.data),
        },
    }


@require(Role.VIEWER, "GET")
def explore_experiment(request: MemberRequest, pk: int) -> HttpResponse:
    """From an experiment to Explore with its configuration in the address."""
    page = experiment_page(request, pk)
    experiment: Experiment = page.experiment
    data = experiment.config or experiment.config_draft
    if data is None and page.run is not None:
        data = configurations.prefill(page.run.profile).data
    state = from_config(data or {}, experiment.pk)
    return HttpResponseRedirect(f"{reverse('explore')}?{state.query()}")


@require(Role.VIEWER, "POST")
def use_model(request: MemberRequest) -> HttpResponse:
    """A config.json pasted on the page becomes the shape in the address; nothing is stored."""
    query = QueryDict(request.POST.get("state", "")[:20_000])
    state = read(query)
    text = request.POST.get("config_json", "")
    shape = _pasted(text)
    if isinstance(shape, str):
        state, meshes, sentence = _meshes(state)
        context = {
            "state": state,
            "here": "explore",
            "meshes_sentence": sentence,
            "paste_error": shape,
            "pasted": text,
        }
        context |= _table(state, meshes) | _context(state, meshes, None)
        return render(request, "explore/explore.html", context, status=422)
    data = {**state.data, "model": shape}
    state = from_config(data, state.experiment)
    return HttpResponseRedirect(f"{reverse('explore')}?{state.query()}", status=303)


def _pasted(text: str) -> dict[str, Any] | str:
    """The shape of a pasted config.json, or one sentence that says what is wrong."""
    if not text.strip():
        return "Paste the text of a config.json first."
    if len(text) > MAX_PASTED:
        return f"The text has {len(text):,} characters; a config.json has a few thousand."
    try:
        shape = read_model(parse_text(text))
    except ConfigError as error:
        return f"{error}."
    except Complaints as refused:
        return f"{refused.errors[0]}."
    if shape is None:
        return "The text contains no model: a config.json has num_hidden_layers, hidden_size and more."
    return model_to_json(shape)


@require(Role.VIEWER, "GET")
def accuracy_page(request: MemberRequest) -> HttpResponse:
    """How far predictions were off on published runs that the fit had not seen."""
    return render(request, "accuracy/accuracy.html", {"here": "accuracy", **report.context()})
