"""What people call an axis, and which axis of this mesh they mean."""

from __future__ import annotations

from perfmodel.config import ROLE_SYNONYMS, Mesh

#: Names of roles, longest first when made into a pattern.
_ROLES = {
    "replica": ("replica", "replicas", "replication"),
    "data": ("data", "batch axis", "data parallel", "data parallelism"),
    "fsdp": ("fsdp", "zero3", "zero-3", "fsdp_transpose"),
    "seq": ("seq", "sequence", "sequences axis", "context", "seq axis", "ring attention", "context_autoregressive"),
    "model": ("model", "tensor", "tensor_transpose", "tensor_sequence", "megatron axis"),
    "expert": ("expert", "experts"),
    "pipeline": ("pipeline", "stage", "stages", "pipe"),
}
_ROLE_OF = {word: role for role, words in _ROLES.items() for word in words}
#: What may follow the name of an axis without changing what is meant.
TAIL = r"(?:[- ](?:parallel(?:ism)?|shard(?:ing|s)?|axis|axes|degree|dim(?:ension)?))*"
NAMES = tuple(sorted(_ROLE_OF, key=len, reverse=True))


def axis_of(mesh: Mesh, word: str) -> str | None:
    """The ICI axis of the mesh that a word means: by its own name, else by its role.

    `data` may mean an fsdp axis, and the other way round, where the mesh has only one of the two.  A role that the mesh
    lacks is named by itself; None for a word that names no axis.
    """
    word = word.strip().lower()
    names = [axis for axis, _ in mesh.ici]
    for axis in names:
        if axis.lower() == word:
            return axis
    role = _ROLE_OF.get(word)
    if role is None:
        return None
    wanted = (role, *(("fsdp",) if role == "data" else ("data",) if role == "fsdp" else ()))
    for each in wanted:
        same = [axis for axis in names if mesh.role(axis) == ROLE_SYNONYMS.get(each, each)]
        if same:
            return max(same, key=lambda axis: dict(mesh.ici)[axis])
    return role


def words_for(mesh: Mesh) -> tuple[str, ...]:
    """Every word that names an axis here, the mesh's own names included, longest first."""
    own = [axis.lower() for axis, _ in (*mesh.ici, *mesh.dcn)]
    return tuple(sorted({*own, *NAMES}, key=len, reverse=True))
