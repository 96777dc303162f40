"""One shape for everything the API refuses: `detail`, a sentence, and `errors` by field where fields are at fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from accounts.refusals import Refused
from accounts.rest import Invalid, NoSpace, TooLarge
from disk import space
from formatting import limit


def one_shape(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's handler, with its nested validation errors flattened to sentences by dotted field, and with
    Django's refusals of a body as the API's own: they come while a view reads it."""
    if isinstance(error, RequestDataTooBig):
        most = limit(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, "bytes")
        error = TooLarge(f"The body is larger than {most}, the limit for anything but uploads.")
    elif isinstance(error, TooManyFilesSent | TooManyFieldsSent):
        files, fields = settings.DATA_UPLOAD_MAX_NUMBER_FILES, settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
        error = Invalid(f"The form has more than {files} files or {fields} fields; send fewer.")
    elif isinstance(error, Refused):
        status, error = error.status, exceptions.APIException(str(error))
        error.status_code = status
    elif isinstance(error, space.NoSpace) or space.is_full(error):
        error = NoSpace(space.sentence(error))
    response = exception_handler(error, context)
    if response is None or not isinstance(error, exceptions.ValidationError):
        return response
    data = response.data
    if isinstance(data, dict) and isinstance(data.get("detail"), str):
        return response  # ours already
    errors = dict(_flat(data))
    field, message = next(iter(errors.items()), ("", "The request is not valid."))
    response.data = {"detail": f"{field}: {message}" if field else message, "errors": errors}
    return response


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for key, value in data.items():
            name = "" if key == "non_field_errors" else str(key)
            yield from _flat(value, ".".join(part for part in (path, name) if part))
    elif isinstance(data, list):
        if all(isinstance(item, str) for item in data):
            yield path, " ".join(data)
        else:
            for index, item in enumerate(data):
                yield from _flat(item, f"{path}.{index}" if path else str(index))
    else:
        yield path, str(data)
