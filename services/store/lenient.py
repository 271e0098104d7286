"""Stored records read field by field: what cannot be read takes its default, and is logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

log = structlog.get_logger()
M = TypeVar("M", bound=BaseModel)


def read_leniently(form: type[M], stored: Mapping[str, Any], point_id: str) -> M:
    """Raises pydantic.ValidationError when a field that has no default is missing or cannot be read."""
    try:
        return form.model_validate(stored)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        unreadable = {str(each["loc"][0]) for each in errors}
        readable = {name: value for name, value in stored.items() if name not in unreadable}
        read = form.model_validate(readable)
    log.warning("fields_unreadable", point_id=point_id, number=len(unreadable), fields=sorted(unreadable))
    return read
