"""The OpenAPI schema, written once per process: it changes with the code only, and takes a third of a second."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """The same for everybody, in the format that was asked for."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        name = self._get_filename(request, None)
        return HttpResponse(
            _written(type(renderer)),
            content_type=f"{renderer.media_type}; charset=utf-8",
            headers={"Content-Disposition": f'inline; filename="{name}"', "Vary": "Accept"},
        )


@cache
def _written(renderer: type[BaseRenderer]) -> bytes:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    text: bytes = renderer().render(schema, renderer_context={})
    return text
