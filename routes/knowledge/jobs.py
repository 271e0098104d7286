"""The jobs that read documents in."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from uuid import UUID

from fastapi import APIRouter

from routes.dependencies import ContainerDep, Owner, readable
from routes.knowledge.replies import job_reply
from routes.openapi import JOB_STREAM, WireRoute, errors
from routes.stream.response import EventStreamResponse
from routes.wire.documents import Job, JobList

router = APIRouter(tags=["documents"], responses=errors(401, 404, 422), route_class=WireRoute)


@router.get("/jobs")
async def list_jobs(container: ContainerDep, owner: Owner) -> JobList:
    """The jobs that wait, run, or ended lately; the newest first."""
    jobs = container.knowledge.list_jobs(readable(owner))
    return JobList(jobs=[job_reply(job) for job in jobs])


@router.get("/jobs/{job_id}")
async def get_job(job_id: UUID, container: ContainerDep, owner: Owner) -> Job:
    """How far a job is: stage, attempt, done, total, error."""
    return job_reply(container.knowledge.job(str(job_id), readable(owner)))


@router.get(
    "/jobs/{job_id}/stream",
    status_code=200,
    response_class=EventStreamResponse,
    responses={200: JOB_STREAM},
)
async def follow_job(job_id: UUID, container: ContainerDep, owner: Owner) -> EventStreamResponse:
    """The job's state now and after every change, as JSON events; ends with the final one."""
    changes = container.knowledge.job_changes(str(job_id), readable(owner))
    ping_interval_s = container.settings.server.ping_interval_s

    async def events() -> AsyncGenerator[bytes, None]:
        async for snapshot in changes:
            yield f"event: job\ndata: {json.dumps(job_reply(snapshot).model_dump(mode='json'))}\n\n".encode()

    return EventStreamResponse(events(), ping_interval_s)
