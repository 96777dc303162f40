"""The state of Explore is the address: from a query to a configuration and back.

The query uses the names of the configuration form (`experiments.config_form`), so both say the same things alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from experiments import config_form
from formatting.numbers import whole_number
from perfmodel import config_file
from perfmodel.chips import load_chips
from perfmodel.config import ConfigError, ExperimentConfig, Hardware, Mesh, Training
from perfmodel.config_file import MAX_CHIPS, OverridesFile, SoftwareFile
from perfmodel.space import default_axes, divisors

#: What the page shows to somebody who has asked for nothing yet.
START: Mapping[str, Any] = {
    "hardware": {"chip": "v5e", "topology": [16, 16]},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 256, "seq_len": 8192},
}
SHOWN = ("legal", "rejected", "all")
SORTS = ("step", "-step", "memory", "-memory")
NOTHING = "none"


@dataclass(frozen=True)
class State:
    """data: the contract's JSON.  config: the same as values, None where errors stand against it.  errors: sentences by
    dotted field.  follows: the axis that keeps the product, or `none`.  automatic: nobody chose a mesh yet.
    notes: what was changed to make it fit.  own_axes: exactly these axes, not also the usual ones at size one.
    model_alone: whether to predict without what the experiment measured."""

    data: dict[str, Any]
    config: ExperimentConfig | None
    errors: dict[str, str]
    warnings: tuple[str, ...] = ()
    follows: str = ""
    automatic: bool = False
    notes: tuple[str, ...] = ()
    experiment: int | None = None
    show: str = "legal"
    sort: str = "step"
    page: int = 1
    own_axes: bool = False
    model_alone: bool = False

    @property
    def sizes(self) -> dict[str, Any]:
        return dict(self.data.get("mesh", {}).get("ici", {}))

    @property
    def total(self) -> int | None:
        return chips_per_slice(self.data)

    def on(self, ici: Mapping[str, int]) -> State:
        """The same with these sizes, not checked."""
        mesh = {**self.data.get("mesh", {}), "ici": dict(ici)}
        return replace(self, data={**self.data, "mesh": mesh}, automatic=False)

    def query(self, **changes: Any) -> str:
        """The address of this state, what has its default left out."""
        values = {"show": self.show, "sort": self.sort, "page": self.page, **changes}
        fields = pairs_of(self.data)
        if self.experiment:
            fields.append(("experiment", str(self.experiment)))
        if self.follows and self.follows != first_follower(list(self.sizes)):
            fields.append(("follow", self.follows))
        if self.own_axes:
            fields.append(("own_axes", "1"))
        if self.experiment and self.model_alone:
            fields.append(("evidence", NOTHING))
        defaults = {"show": "legal", "sort": "step", "page": 1}
        fields += [(key, str(value)) for key, value in values.items() if value and value != defaults.get(key)]
        return urlencode(fields)


def read(query: QueryDict) -> State:
    """The state an address describes.  What is wrong stays as it was written, with a sentence in `errors`."""
    data = _data(query)
    automatic = not _part(data, "mesh").get("ici")
    given = list(_part(_part(data, "mesh"), "ici"))
    asked = list(dict.fromkeys(query.get("axes", "").replace(",", " ").replace("·", " ").split()))[:16]
    own_axes = bool(asked and asked != given) or (bool(given) and query.get("own_axes") == "1")
    data["mesh"] = {**_part(data, "mesh"), "ici": _axes(data, (asked or given) if own_axes else [])}
    if not _part(data, "hardware").get("slices"):
        data["hardware"] = {**_part(data, "hardware"), "slices": 1}
    names = list(data["mesh"]["ici"])
    follows = query.get("follow", "")
    if follows not in (*names, NOTHING):
        follows = first_follower(names)
    notes = _fit(data, query, follows, automatic)
    show, sort = query.get("show", ""), query.get("sort", "")
    return checked(
        State(
            data=data,
            config=None,
            errors={},
            follows=follows,
            own_axes=own_axes,
            automatic=automatic,
            notes=notes,
            experiment=whole_number(query.get("experiment", ""), 9),
            model_alone=query.get("evidence") == NOTHING,
            show=show if show in SHOWN else "legal",
            sort=sort if sort in SORTS else "step",
            page=whole_number(query.get("page", ""), 9) or 1,
        )
    )


def checked(state: State) -> State:
    """The state with its configuration, or with the sentences that stand against it."""
    errors: dict[str, str] = {}
    for complaint in config_file.all_errors(state.data):
        errors.setdefault(complaint.field, complaint.message)
    if errors:
        return replace(state, config=None, errors=errors)
    config, warnings = config_file.parse_config(state.data)
    # Defaults become explicit, so that the address says all that was priced.
    return replace(state, config=config, errors={}, warnings=tuple(warnings), data=_explicit(config))


def searchable(state: State) -> ExperimentConfig | None:
    """The configuration whose meshes can be listed, even where its own mesh has the wrong product."""
    if state.config is not None:
        return state.config
    total, names = state.total, list(state.sizes)
    if total is None or not names:
        return None
    return checked(state.on(refit(dict.fromkeys(names, 1), total, first_follower(names)))).config


def _explicit(config: ExperimentConfig) -> dict[str, Any]:
    data = config_file.config_to_json(config)
    for key in ("name", "notes"):
        data.pop(key, None)
    return data


def from_config(data: Mapping[str, Any], experiment: int | None = None) -> State:
    """The state that starts from an experiment's configuration, complete or not."""
    return read(QueryDict(urlencode([*pairs_of(data), *([("experiment", str(experiment))] if experiment else [])])))


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _data(query: QueryDict) -> dict[str, Any]:
    if not any(query.get(key) for key in ("chip", "topology", "model", "ici_name", "global_batch")):
        return {key: dict(value) for key, value in START.items()}
    data = config_form.data_from(query)
    model = data.get("model")
    if isinstance(model, dict) and query.get("model") == config_form.CUSTOM:
        data.pop("model")
        name = query.get("shape_name", "").strip()
        if model:
            data["model"] = {**({"name": name} if name else {}), **model}
    overrides = {key: _number(query.get(f"override_{key}", "")) for key in OverridesFile.model_fields}
    overrides = {key: value for key, value in overrides.items() if value is not None}
    if overrides:
        data["hardware"] = {**data["hardware"], "overrides": overrides}
    software = {key: query.get(f"software_{key}", "").strip() for key in SoftwareFile.model_fields}
    software["framework"] = query.get("framework", "").strip() or software["framework"]
    if any(software.values()):
        data["software"] = {key: value for key, value in software.items() if value}
    return data


def _number(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text


def pairs_of(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A configuration, complete or not, as the fields of the form; what holds unsaid is left out."""
    shown = config_form.fields_from(data)
    fields = [("chip", shown["chip"]), ("topology", shown["topology"].replace(" × ", "x")), ("slices", shown["slices"])]
    fields += [(f"override_{key}", value) for key, value in _part(_part(data, "hardware"), "overrides").items()]
    for place in ("ici", "dcn") if shown["slices"] != "1" else ("ici",):
        axes = [axis for axis in shown[place] if axis.size]
        for axis in axes:
            fields += [(f"{place}_name", axis.name), (f"{place}_size", axis.size)]
            fields += [(f"{place}_role", axis.role)] if any(each.role for each in axes) else []
    fields.append(("model", shown["model"]))
    if shown["model"] == config_form.CUSTOM:
        fields.append(("shape_name", _part(data, "model").get("name")))
        for key, value in shown["shape"].items():
            if key != "source" and value is not False:
                fields.append((f"shape_{key}", 1 if value is True else value))
    fields += [(key, shown[key]) for key in (*config_form.TRAINING_NUMBERS, *config_form.TRAINING_WORDS, "framework")]
    software = _part(data, "software")
    fields += [(f"software_{key}", value) for key, value in software.items() if key != "framework"]
    unsaid = {"slices": "1", "grad_accum": "1", "virtual_stages": "1"}
    said = [(key, "" if value is None else str(value)) for key, value in fields]
    return [(key, value) for key, value in said if (value != unsaid.get(key, "") and value) or key.endswith("_role")]


def _axes(data: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Sizes of the axes the page shows: these, or else those given with the usual ones at size one."""
    given: dict[str, Any] = dict(_part(_part(data, "mesh"), "ici"))
    return {name: given.get(name, 1) for name in names or _usual(data, given)}


def _usual(data: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The axes that the search varies for this chip and model."""
    hardware = _part(data, "hardware")
    if hardware.get("chip") not in load_chips():
        return list(given) or list(config_form.DEFAULT_AXES[1:])
    mesh = Mesh(tuple((name, 1) for name in given), (), dict(_part(_part(data, "mesh"), "axis_roles")))
    model = None
    try:
        rest = {"hardware": {"chip": hardware["chip"], "topology": [1]}, "mesh": {"ici": {"data": 1}}}
        model = config_file.parse_config({**rest, "model": data.get("model")})[0].model
    except ConfigError:
        pass  # the model's own error is said elsewhere
    try:
        return list(default_axes(ExperimentConfig(Hardware(hardware["chip"], (1,)), mesh, model, Training())))
    except ValueError:  # an axis whose role nobody knows
        return list(given)


def chips_per_slice(data: Mapping[str, Any]) -> int | None:
    """Product of the topology; None while it is no list of whole numbers."""
    dims = _part(data, "hardware").get("topology")
    if not isinstance(dims, list) or not dims or not all(isinstance(d, int) and 0 < d <= 10**7 for d in dims):
        return None
    total = prod(dims)
    return total if total <= MAX_CHIPS else None


def first_follower(names: list[str]) -> str:
    """The axis that takes what the others leave, unless told otherwise: the batch, which is most often free."""
    return next((name for name in names if name in ("data", "fsdp")), names[0] if names else NOTHING)


def _fit(data: dict[str, Any], query: QueryDict, follows: str, automatic: bool) -> tuple[str, ...]:
    """Make the products equal to the chips where that is what was asked for; says what it changed."""
    _fit_slices(data)
    sizes, total = data["mesh"]["ici"], chips_per_slice(data)
    if total is None or not sizes or not all(isinstance(size, int) and size > 0 for size in sizes.values()):
        return ()
    if automatic:
        data["mesh"]["ici"] = refit(dict.fromkeys(sizes, 1), total, follows)
        return ()
    if follows == NOTHING or prod(sizes.values()) == total:
        return ()
    moved, before = query.get("moved", ""), query.get("chips", "")
    if moved in sizes:
        data["mesh"]["ici"] = refit(sizes, total, follows, moved)
        return ()
    rest = prod(size for name, size in sizes.items() if name != follows)
    if total % rest == 0:
        new = {**sizes, follows: total // rest}
    elif before != str(total) and before:
        new = refit(sizes, total, follows)
    else:
        return ()
    data["mesh"]["ici"] = new
    changes = ", ".join(f"{name} {sizes[name]} → {new[name]}" for name in sizes if sizes[name] != new[name])
    return (f"The mesh was fitted to {total:,} chips per slice: {changes}.",)


def _fit_slices(data: dict[str, Any]) -> None:
    """Across slices, `data` takes what the other axes leave."""
    slices, mesh = _part(data, "hardware").get("slices"), data["mesh"]
    if not isinstance(slices, int) or slices <= 1:
        return
    dcn = {"data": 1, **_part(mesh, "dcn")}
    if all(isinstance(size, int) and size > 0 for size in dcn.values()):
        rest = prod(size for name, size in dcn.items() if name != "data")
        if rest * dcn["data"] != slices and slices % rest == 0:
            dcn["data"] = slices // rest
    data["mesh"] = {**mesh, "dcn": dcn}


def refit(sizes: Mapping[str, int], total: int, follows: str, moved: str = "") -> dict[str, int]:
    """Sizes whose product is `total`.

    `moved` keeps its size; every other axis keeps its own as far as it divides what is left; `follows` takes the rest.
    Where `moved` does not divide the total nothing changes.
    """
    if moved and total % sizes[moved]:
        return dict(sizes)
    taker = follows
    if taker not in sizes or taker == moved:
        others = [name for name in sizes if name != moved]
        if not others:
            return dict(sizes)
        taker = next((name for name in others if sizes[name] > 1), others[0])
    new = dict(sizes)
    left = total // sizes[moved] if moved else total
    for name, size in sizes.items():
        if name in (moved, taker):
            continue
        new[name] = max(n for n in divisors(left) if n <= size)
        left //= new[name]
    new[taker] = left
    return new
