"""A configuration against its own profile: what contradicts, what the user decided, and what is kept as a caveat."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from experiments.consistency import Contradiction, Facts, contradictions, facts_of
from experiments.models import Experiment, Profile
from experiments.services import profiles, storage
from perfmodel.catalogue import UnknownModelError, get_model, model_to_json
from perfmodel.config import ExperimentConfig


def facts(profile: Profile) -> Facts:
    """What the profile tells of its configuration; nothing before it was read, or where its data is gone."""
    if not profile.data:
        return Facts()
    try:
        return _facts(profile.data, storage.absolute(profile.data).stat().st_mtime_ns)
    except (FileNotFoundError, profiles.NotIngested):
        return Facts()


@lru_cache(maxsize=64)
def _facts(path: str, written_ns: int) -> Facts:
    """By path and time of writing: a restored backup may hold another profile under a path that was read before."""
    return facts_of(profiles.load_from(path))


def contradicted(
    profile: Profile, data: Mapping[str, Any], config: ExperimentConfig | None
) -> tuple[Contradiction, ...]:
    """What the profile contradicts in a configuration that passed its own checks."""
    return contradictions(facts(profile), data, config) if config is not None else ()


def undecided_contradictions(
    items: Iterable[Contradiction], kept: Iterable[Mapping[str, Any]], accept: Collection[str] = ()
) -> tuple[Contradiction, ...]:
    """Contradictions that nobody decided on: neither accepted now by field, nor kept before with the same two sides.

    kept: `Experiment.config_kept`; an entry that names no sides was accepted before the profile was read.
    """
    before = [(item.get("field"), item.get("configured"), item.get("profile")) for item in kept]
    return tuple(
        item
        for item in items
        if item.field not in accept
        and (item.field, item.configured, item.profile) not in before
        and (item.field, None, None) not in before
    )


def as_kept(items: Iterable[Contradiction]) -> list[dict[str, Any]]:
    """What is stored with the configuration of contradictions that its user keeps."""
    return [item.to_json() for item in items]


def accepted_unseen(fields: Iterable[str]) -> list[dict[str, Any]]:
    """Fields that are to be kept whatever the profile says, given with the upload."""
    return [{"field": field} for field in dict.fromkeys(fields)]


def caveats(experiment: Experiment) -> list[str]:
    """Sentences for pages and reports: what the user kept against the profile."""
    return [str(item["sentence"]) for item in experiment.config_kept if item.get("sentence")]


def applied(data: Mapping[str, Any], use: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with values by dotted path put in; a mesh or a topology is replaced whole.

    A model that is given by name becomes its shape where one of its sizes is replaced.
    """
    result = dict(data)
    if any(path.startswith("model.") for path in use):
        result["model"] = _as_shape(result.get("model"))
    for path, value in use.items():
        *parts, last = path.split(".")
        at = result
        for part in parts:
            inner = at.get(part)
            at[part] = dict(inner) if isinstance(inner, Mapping) else {}
            at = at[part]
        at[last] = value
    return result


def _as_shape(model: Any) -> dict[str, Any]:
    """The sizes behind a model's name, without the name; a shape is unchanged."""
    given = {"name": model} if isinstance(model, str) else dict(model or {})
    name = given.pop("name", "")
    if not name:
        return given
    try:
        shape = get_model(str(name))
    except UnknownModelError:
        return given
    return {**model_to_json(replace(shape, name="")), **given}
