"""REST of the challenge dialogue: threads, questions and answers, what is held, and what becomes a proposal."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import exceptions, mixins, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Role
from accounts.permissions import check, get_for, team_ids
from accounts.rest import Detail, TeamObjects, validated
from dialogue.api.serializers import (
    CardDecision,
    HeldSerializer,
    MessageSerializer,
    NewMessage,
    NewThread,
    OfferRequest,
    ThreadSerializer,
)
from dialogue.models import Held, Message, Thread
from dialogue.services import acting, asking, holding
from experiments.api.common import ConfigErrors
from experiments.models import Experiment
from proposals.api.views import ProposalContractSerializer, ProposalSerializer
from proposals.api.views_loop import PlanRequestSerializer


@extend_schema_view(list=extend_schema(tags=["dialogue"]), retrieve=extend_schema(tags=["dialogue"]))
class ThreadViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TeamObjects[Thread]):
    """Conversations about an experiment's proposals, most recently updated first."""

    queryset = Thread.objects.select_related("created_by", "experiment")
    serializer_class = ThreadSerializer
    filterset_fields = ("experiment",)

    @extend_schema(
        request=NewThread,
        responses={201: ThreadSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        tags=["dialogue"],
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        """Open a thread, or return the one that you have not used yet; requires an engineer."""
        values = validated(NewThread, request)
        experiment = get_for(request.user, Experiment.objects.all(), Role.ENGINEER, pk=values["experiment"])
        opened = ThreadSerializer(asking.open_thread(experiment, request.user))
        return Response(opened.data, status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None, 403: Detail}, tags=["dialogue"])
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a thread for everyone; requires its creator or an administrator.  Its events are kept."""
        thread = self.get_object()
        if not asking.may_delete(thread, check(request.user, thread, Role.VIEWER)):
            raise exceptions.PermissionDenied(asking.NOT_YOURS)
        asking.delete(thread, request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        methods=["GET"], responses=MessageSerializer(many=True), description="The thread's messages, oldest first.",
        tags=["dialogue"],
    )  # fmt: skip
    @extend_schema(
        methods=["POST"], request=NewMessage,
        responses={202: MessageSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        description="Ask a question; requires an engineer.  Returns the queued answer: poll /api/answers/{id}/ until "
        "`status` is done, stopped or failed, or follow its `stream`.  409 while another answer is being "
        "written.",
        tags=["dialogue"],
    )  # fmt: skip
    @action(detail=True, methods=["get", "post"], pagination_class=None)
    def messages(self, request: Request, pk: str) -> Response:
        thread = self.get_object()
        if request.method == "GET":
            return Response(MessageSerializer(thread.messages.select_related("author"), many=True).data)
        values = validated(NewMessage, request)
        answer = asking.ask(thread, request.user, values["text"])
        return Response(MessageSerializer(answer).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: PlanRequestSerializer, 403: Detail, 409: Detail}, tags=["dialogue"])
    @action(detail=True, methods=["post"], pagination_class=None)
    def propose(self, request: Request, pk: str) -> Response:
        """Request new proposals under the thread's constraints and facts; poll /api/plan-requests/{id}/."""
        made = acting.propose_again(self.get_object(), request.user)
        return Response(PlanRequestSerializer(made).data, status=status.HTTP_202_ACCEPTED)


class _OfThreads(TeamObjects[Any]):
    """Rows of the threads of the caller's teams."""

    def get_queryset(self) -> QuerySet[Any]:
        return super(TeamObjects, self).get_queryset().filter(thread__team_id__in=team_ids(self.request.user))


@extend_schema_view(retrieve=extend_schema(tags=["dialogue"]))
class AnswerViewSet(mixins.RetrieveModelMixin, _OfThreads):
    """The agents' answers, including unfinished ones."""

    queryset = Message.objects.filter(role=Message.Role.ASSISTANT).select_related(
        "thread__experiment", "author", "question"
    )
    serializer_class = MessageSerializer

    @extend_schema(request=None, responses={200: MessageSerializer, 403: Detail}, tags=["dialogue"])
    @action(detail=True, methods=["post"], pagination_class=None)
    def stop(self, request: Request, pk: str) -> Response:
        """Stop an answer that is being written; a finished answer is unchanged."""
        answer = self.get_object()
        asking.stop(answer)
        answer.refresh_from_db()
        return Response(MessageSerializer(answer).data)

    @extend_schema(request=None, responses={202: MessageSerializer, 403: Detail, 409: Detail}, tags=["dialogue"])
    @action(detail=True, methods=["post"], pagination_class=None)
    def retry(self, request: Request, pk: str) -> Response:
        """Answer the thread's last question again; the previous answer is kept."""
        made = asking.retry(self.get_object(), request.user)
        return Response(MessageSerializer(made).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(
        request=OfferRequest,
        responses={201: ProposalContractSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        tags=["dialogue"],
    )
    @action(detail=True, methods=["post"], url_path="proposals", pagination_class=None)
    def add(self, request: Request, pk: str) -> Response:
        """Add a mesh offered in the answer to the newest plan, after the same checks as any proposal."""
        answer = self.get_object()
        values = validated(OfferRequest, request)
        made = acting.add_offered(answer, values["effect"], request.user)
        contract = {**made.value.to_json(), **ProposalSerializer(made).data}
        return Response(contract, status=status.HTTP_201_CREATED)

    @extend_schema(
        request=CardDecision, responses={200: MessageSerializer, 400: ConfigErrors, 403: Detail, 409: Detail},
        tags=["dialogue"],
    )  # fmt: skip
    @action(detail=True, methods=["post"], pagination_class=None)
    def cards(self, request: Request, pk: str) -> Response:
        """Hold a constraint or fact that the answer asks to hold, or dismiss it; requires an engineer."""
        answer = self.get_object()
        values = validated(CardDecision, request)
        holding.answer_card(answer, values["effect"], request.user, values["hold"])
        answer.refresh_from_db()
        return Response(MessageSerializer(answer).data)


@extend_schema_view(list=extend_schema(tags=["dialogue"]), retrieve=extend_schema(tags=["dialogue"]))
class HeldViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, _OfThreads):
    """The active constraints and facts of threads."""

    queryset = Held.objects.filter(removed_at=None).select_related("thread").order_by("pk")
    serializer_class = HeldSerializer
    filterset_fields = ("thread",)

    @extend_schema(responses={204: None, 403: Detail}, tags=["dialogue"])
    def destroy(self, request: Request, pk: str) -> Response:
        """Remove a constraint or fact; requires an engineer."""
        holding.release(self.get_object(), request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)
