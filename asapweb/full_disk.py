"""A page that needed space where there is none: 507 with a sentence, whichever view it was."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from asapweb.error_pages import refuse
from disk import space

logger = logging.getLogger(__name__)


class FullDiskMiddleware(MiddlewareMixin):
    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, space.NoSpace) and not space.is_full(error):
            return None
        logger.warning("%s %s was refused: %s", request.method, request.path, error)
        return refuse(request, 507, "Disk full", space.sentence(error))
