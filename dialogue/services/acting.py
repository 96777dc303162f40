"""From words to proposals: a mesh that an answer offers, and proposals again within what a thread holds.

Always a person's doing, with a person's role; no agent comes here.
"""

from __future__ import annotations

from accounts.models import User
from dialogue.models import Message, Thread
from dialogue.services import holding
from dialogue.services.asking import DialogueError
from experiments.services import events
from perfmodel.config import ConfigError
from proposals.agents.conversation import MeshOffered, read_effects
from proposals.constraints import Constraints
from proposals.models import PlanRequest, Proposal
from proposals.services import custom_mesh, plans, regenerating


def add_offered(answer: Message, index: int, user: User) -> Proposal:
    """Add the mesh of an answer's effect to the newest plan, after the same checks as any other.

    Raises DialogueError with the sentence why not; Http404 and PermissionDenied below engineer.
    """
    offered = read_effects(answer.effects).get(index)
    if not isinstance(offered, MeshOffered):
        raise DialogueError("This answer does not offer that mesh.")
    plan = plans.newest(answer.thread.experiment)
    if plan is None:
        raise DialogueError("There are no proposals to add it to yet; wait for the analysis.")
    try:
        made = custom_mesh.add(plan, user, offered)
    except custom_mesh.CustomMeshError as error:
        raise DialogueError(str(error)) from error
    event = {"thread": answer.thread_id, "message": answer.pk, "added": made.pk, "title": made.title}
    events.append(answer.thread.experiment_id, "message", "user", user=user, data=event)
    return made


def propose_again(thread: Thread, user: User) -> PlanRequest:
    """Proposals again, within the constraints of the newest plan and those that the thread holds.

    Raises DialogueError with the sentence why not; Http404 and PermissionDenied below engineer.
    """
    plan = plans.newest(thread.experiment)
    try:
        stands = plan.asked if plan is not None else Constraints()
        wanted = stands.joined(holding.constraints_of(holding.held_by(thread)))
        return regenerating.request(thread.experiment, user, wanted.to_json())
    except (ConfigError, regenerating.RequestError) as error:
        raise DialogueError(str(error)) from error
