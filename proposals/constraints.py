"""User constraints that every proposal obeys, and their sentences.  Pure, no Django."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, reduce
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from formatting import limit
from perfmodel.config import ROLE_SYNONYMS, ROLES, ConfigError, ExperimentConfig, Mesh, mesh_text
from perfmodel.reading import Bool, complaints, mapping

#: How the rule of a candidate begins that a constraint left out.
RULE = "your constraint"
#: The largest share of memory that can be asked to stay free.
MOST_MARGIN = 0.5
#: Axes, excluded meshes and sizes that one set of constraints may name.
MOST_NAMED = 100
MOST_CHIPS = 10**7
#: A key of constraints stored before proposals kept to the chips that ran; it binds nothing.
_RETIRED = "at_most_chips"

_NOTHING: Mapping[str, int] = MappingProxyType({})


def _axis_name(value: str) -> str:
    if not value or len(value) > 40 or not value.isprintable():
        raise ValueError("takes axis names of at most 40 characters")
    return value


def _is_mesh(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if "ici" not in value or set(value) - {"ici", "dcn"}:
        raise ValueError('must be a mesh, such as {"ici": {"data": 4, "model": 2}}')
    return value


AxisName = Annotated[str, AfterValidator(_axis_name)]
Count = Annotated[int, Field(strict=True, ge=1, le=MOST_CHIPS)]
Sizes = Annotated[Mapping[AxisName, Count], Field(max_length=MOST_NAMED)]
WrittenMesh = Annotated[Mapping[str, Sizes], AfterValidator(_is_mesh)]
Names = Annotated[
    tuple[AxisName, ...], Field(max_length=MOST_NAMED), AfterValidator(lambda names: tuple(dict.fromkeys(names)))
]


@dataclass(frozen=True)
class Constraints:
    """What proposals must keep to.

    keep_batch, keep_remat, keep_weight_sharding, keep_micro_batches: the training key is unchanged.  no_flags: no XLA
    flags are changed.  keep_axes: names or roles of axes whose size stays.  fixed, at_least, at_most: size inside a
    slice by axis name or role.  memory_margin: share of the memory that a program can fill which must stay free, 0 to
    0.5.  excluded: meshes ({"ici": {…}, "dcn": {…}}) that must not come.
    """

    keep_batch: Bool = False
    keep_axes: Names = ()
    fixed: Sizes = field(default_factory=lambda: _NOTHING)
    at_least: Sizes = field(default_factory=lambda: _NOTHING)
    at_most: Sizes = field(default_factory=lambda: _NOTHING)
    memory_margin: Annotated[float, Field(strict=True, ge=0.0, le=MOST_MARGIN, allow_inf_nan=False)] = 0.0
    keep_remat: Bool = False
    keep_weight_sharding: Bool = False
    keep_micro_batches: Bool = False
    no_flags: Bool = False
    excluded: Annotated[tuple[WrittenMesh, ...], Field(max_length=MOST_NAMED)] = ()

    def __bool__(self) -> bool:
        """Whether anything is asked for at all."""
        return self != Constraints()

    def to_json(self) -> dict[str, Any]:
        """The keys that say something; `from_json` reads them back."""
        values: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value != getattr(_NONE, item.name):
                values[item.name] = _plain(value)
        return values

    def parts(self) -> Iterator[tuple[str, Constraints]]:
        """Each constraint by itself, under the name by which it is taken back: `keep_batch`, `fixed.model`,
        `keep_axes.seq`, `excluded.0`."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Mapping):
                for axis, size in value.items():
                    yield f"{item.name}.{axis}", _only(item.name, {axis: size})
            elif isinstance(value, tuple):
                for number, one in enumerate(value):
                    part = number if item.name == "excluded" else one
                    yield f"{item.name}.{part}", _only(item.name, (one,))
            elif value != getattr(_NONE, item.name):
                yield item.name, _only(item.name, value)

    def joined(self, other: Constraints) -> Constraints:
        """Both; where they say different things of the same axis or key, the other's word counts."""
        values: dict[str, Any] = {}
        for item in fields(self):
            own, more = getattr(self, item.name), getattr(other, item.name)
            if isinstance(own, Mapping):
                values[item.name] = {**own, **more}
            elif isinstance(own, tuple):
                values[item.name] = (*own, *(one for one in more if one not in own))
            else:
                values[item.name] = own if more == getattr(_NONE, item.name) else more
        return Constraints(**values)

    def without(self, name: str) -> Constraints:
        """Less one of its parts, or all parts of one key."""
        left = (part for key, part in self.parts() if name not in (key, key.partition(".")[0]))
        return reduce(Constraints.joined, left, _NONE)

    @classmethod
    def from_json(cls, data: Any) -> Constraints:
        """Raises ConfigError with one sentence that names the key at fault."""
        known = cls.__dataclass_fields__
        try:
            data = {key: value for key, value in mapping(data).items() if key != _RETIRED}
            for key in data:
                if key not in known:
                    raise ConfigError(f"constraints.{key[:40]}", f"is unknown; known keys: {', '.join(sorted(known))}")
            return _reader().validate_python(data)
        except ConfigError:
            raise
        except ValidationError as error:
            raise complaints(error, "constraints")[0] from error
        except ValueError as error:
            raise ConfigError("constraints", str(error)) from error

    def check(self, config: ExperimentConfig) -> None:
        """Raise ConfigError where an axis named here is neither one of the mesh nor a role, or bounds contradict."""
        for key, names in (("keep_axes", self.keep_axes), *((key, getattr(self, key)) for key in _BOUNDS)):
            for name in names:
                if name not in ROLES and not axes_named(config.mesh, name):
                    axes = " ".join(axis for axis, _ in config.mesh.ici)
                    raise ConfigError(
                        f"constraints.{key}", f"{name!r} is neither an axis of the mesh ({axes}) nor a role"
                    )
        for name, low in self.at_least.items():
            high = self.at_most.get(name)
            if high is not None and low > high:
                raise ConfigError("constraints.at_least", f"asks for {name} of at least {low} and at most {high}")
        for name, size in self.fixed.items():
            if not self.at_least.get(name, 1) <= size <= self.at_most.get(name, size):
                raise ConfigError("constraints.fixed", f"{name} {size} contradicts the bounds given for that axis")

    def describe(self) -> tuple[str, ...]:
        """One sentence per constraint."""
        lines = []
        if self.keep_batch:
            lines.append("Keep the global batch.")
        lines += [f"Keep the size of the {name} axis." for name in self.keep_axes]
        lines += [f"Pin the {name} axis to {size}." for name, size in self.fixed.items()]
        lines += [f"Keep the {name} axis at {size} or more." for name, size in self.at_least.items()]
        lines += [f"Keep the {name} axis at {size} or less." for name, size in self.at_most.items()]
        if self.memory_margin:
            lines.append(f"Keep {limit(self.memory_margin, 'share', 6)} of usable memory free.")
        if self.keep_remat:
            lines.append("Keep rematerialisation unchanged.")
        if self.keep_weight_sharding:
            lines.append("Keep the weight sharding.")
        if self.keep_micro_batches:
            lines.append("Keep the number of micro-batches.")
        if self.no_flags:
            lines.append("Change no XLA flags.")
        lines += [f"Exclude the mesh {mesh_text(mesh)}." for mesh in self.excluded]
        return tuple(lines)


def _only(name: str, value: Any) -> Constraints:
    return Constraints(**{name: value})


_BOUNDS = ("fixed", "at_least", "at_most")
_NONE = Constraints()


def axes_named(mesh: Mesh, name: str) -> tuple[str, ...]:
    """The ICI axes that a user means by a name: the axis of that name, else all axes of that role."""
    axes = [axis for axis, _ in mesh.ici]
    if name in axes:
        return (name,)
    role = ROLE_SYNONYMS.get(name, name)
    return tuple(axis for axis in axes if mesh.role(axis) == role)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@cache
def _reader() -> TypeAdapter[Constraints]:
    return TypeAdapter(Constraints)
