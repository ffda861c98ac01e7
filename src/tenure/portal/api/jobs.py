"""Jobs: submit, list, show, why, logs, and the verbs on one of them (`POST /jobs/{id}:cancel`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from tenure.control import verbs, views
from tenure.domain.errors import InvalidRequest
from tenure.portal.auth import caller_of
from tenure.portal.logs import follow_log, read_from, size_of, tail_start
from tenure.portal.reception import Reception
from tenure.portal.stream import wait_for

from .context import Asking, Body, Home, Live, Reply, problems, read_body
from .wire.jobs import Array, Cancel, JobObject, JobPage, JobShown, JobSubmission, Note, Release, Retry, Several, Why

__all__ = ["router", "takes"]

router = APIRouter(tags=["jobs"])


def takes(model: type[Any], *, required: bool = False) -> dict[str, Any]:
    """The request's schema for the document; the verb itself does the checking, once."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key answers with the same job; with another body, 409.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


@router.post(
    "/jobs",
    status_code=201,
    operation_id="submit",
    summary="Submit a job or an array",
    openapi_extra=takes(JobSubmission, required=True) | {"parameters": [_KEY]},
    responses={
        201: {
            "model": JobObject | Array | Several,
            "description": "It is in the ledger, on disk; without Location where a file held several",
            "headers": {"Location": {"description": "Where it is", "schema": {"type": "string"}}},
        },
        **problems(400, 403, 409, 413, 422, 503),
    },
    response_model=None,
)
async def submit(request: Request) -> Response:
    body = await read_body(request)
    key = request.headers.get("idempotency-key")
    reception: Reception = request.app.state.reception
    job = await reception.submit(body, caller=caller_of(request), idempotency_key=key)
    where = {"Location": f"/api/v1/jobs/{job['id']}"} if "id" in job else {}
    return Reply(job, status_code=201, headers=where)


@router.get(
    "/jobs",
    operation_id="list_jobs",
    summary="List jobs",
    responses={200: {"model": JobPage}, **problems(422)},
    response_model=None,
)
def list_jobs(
    platform: Home,
    all: Annotated[bool, Query(description="Ended ones too.")] = False,
    state: str | None = None,
    project: str | None = None,
    name: str | None = None,
    queue: str | None = None,
    array: Annotated[str | None, Query(description="The tasks of this array.")] = None,
    owner: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    return Reply(
        views.jobs(
            platform,
            all=all,
            state=state,
            project=project,
            name=name,
            queue=queue,
            array=array,
            owner=owner,
            limit=limit,
            cursor=cursor,
        )
    )


@router.get(
    "/jobs/{id:name}:wait",
    operation_id="wait",
    summary="Wait for a job's end",
    description="Answers with the job as soon as it has ended, and with 204 at the timeout; ask again then.",
    responses={200: {"model": JobShown}, 204: {"description": "Not yet"}, **problems(404, 422)},
    response_model=None,
)
async def wait(
    platform: Home, news: Live, id: str, timeout: Annotated[float, Query(ge=0, le=600, description="Seconds.")] = 30.0
) -> Response:
    def ended() -> dict[str, Any] | None:
        return views.show(platform, id) if views.has_ended(platform, id) else None

    job = await wait_for(news, ended, job=id, timeout_s=timeout)
    return Response(status_code=204) if job is None else Reply(job)


@router.get(
    "/jobs/{id:name}",
    operation_id="show",
    summary="Show a job",
    responses={200: {"model": JobShown}, **problems(404)},
    response_model=None,
)
def show(platform: Home, id: str) -> Response:
    return Reply(views.show(platform, id))


@router.get(
    "/jobs/{id:name}/why",
    operation_id="why",
    summary="Why it is where it is",
    responses={200: {"model": Why}, **problems(404)},
    response_model=None,
)
def why(
    platform: Home,
    id: str,
    forecast: Annotated[bool, Query(description="false leaves out the expected start, which is a replay")] = True,
) -> Response:
    return Reply(views.why(platform, id, forecast=forecast))


@router.get(
    "/jobs/{id:name}/logs",
    operation_id="logs",
    summary="A job's output, as bytes",
    description=(
        "From `offset`, or the last `tail` lines, up to what there is; with `follow` until the attempt has ended, with `across` until the job has. "
        "`X-Tenure-Offset` says where the answer begins, so that offset plus bytes received is where to go on."
    ),
    responses={
        200: {
            "description": "The bytes, unchanged",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            "headers": {
                name: {"schema": {"type": "integer"}}
                for name in ("X-Tenure-Attempt", "X-Tenure-Offset", "X-Tenure-Size")
            },
        },
        **problems(404, 422),
    },
    response_model=None,
)
def logs(
    platform: Home,
    news: Live,
    id: str,
    stream: Literal["stdout", "stderr"] = "stdout",
    attempt: Annotated[int | None, Query(ge=1, description="The latest otherwise.")] = None,
    task: Annotated[int | None, Query(ge=0, description="A rank of a gang; the first otherwise.")] = None,
    offset: Annotated[int | None, Query(ge=0)] = None,
    tail: Annotated[int | None, Query(ge=0, description="Lines.")] = None,
    follow: bool = False,
    across: Annotated[bool, Query(description="With follow: go on with the attempts that come after.")] = False,
) -> Response:
    if offset is not None and tail is not None:
        raise InvalidRequest("give offset or tail, not both", field="tail")
    source = views.log(platform, id, stream=stream, attempt=attempt, task=task)
    size = size_of(source.path)
    start = offset or 0
    if tail is not None and source.path is not None and size:
        start = tail_start(source.path, tail)
    headers = {
        "X-Tenure-Attempt": str(source.attempt),
        "X-Tenure-Offset": str(start),
        "X-Tenure-Size": str(size),
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    kind = "application/octet-stream"
    if follow:
        following = follow_log(
            news,
            platform,
            id,
            stream=stream,
            attempt=attempt or source.attempt or None,
            task=task,
            offset=start,
            across=across,
        )
        return StreamingResponse(following, media_type=kind, headers=headers)
    if source.path is None or start >= size:
        return Response(b"", media_type=kind, headers=headers)
    return StreamingResponse(
        read_from(source.path, start, size), media_type=kind, headers=headers | {"Content-Length": str(size - start)}
    )


@router.post("/jobs/{id:name}:cancel", operation_id="cancel", summary="Ask for the end", openapi_extra=takes(Cancel), responses={200: {"model": JobObject | Array}, **problems(400, 403, 404, 409, 422)}, response_model=None)  # fmt: skip
def cancel(platform: Home, caller: Asking, id: str, body: Body) -> Response:
    asked = Cancel.model_validate(body)
    return Reply(
        verbs.cancel(platform, id, caller=caller, reason=asked.reason, signal=asked.signal, grace_s=asked.grace_s)
    )


@router.post("/jobs/{id:name}:hold", operation_id="hold", summary="Keep it from starting", responses={200: {"model": JobObject | Array}, **problems(403, 404, 409)}, response_model=None)  # fmt: skip
def hold(platform: Home, caller: Asking, id: str) -> Response:
    return Reply(verbs.hold(platform, id, caller=caller))


@router.post("/jobs/{id:name}:release", operation_id="release", summary="Let it start", openapi_extra=takes(Release), responses={200: {"model": JobObject | Array}, **problems(400, 403, 404, 409, 422)}, response_model=None)  # fmt: skip
def release(platform: Home, caller: Asking, id: str, body: Body) -> Response:
    return Reply(verbs.release(platform, id, caller=caller, at=Release.model_validate(body).at))


@router.post("/jobs/{id:name}:retry", operation_id="retry", summary="Run it again, as a new job", openapi_extra=takes(Retry), responses={200: {"model": JobObject | Array | Several}, **problems(400, 403, 404, 409, 422)}, response_model=None)  # fmt: skip
def retry(platform: Home, caller: Asking, id: str, body: Body) -> Response:
    return Reply(verbs.retry(platform, id, caller=caller, only_failed=Retry.model_validate(body).only_failed))


@router.post("/jobs/{id:name}:note", operation_id="note", summary="A line in its diary", openapi_extra=takes(Note, required=True), responses={200: {"model": JobObject | Array}, **problems(400, 403, 404, 422)}, response_model=None)  # fmt: skip
def note(platform: Home, caller: Asking, id: str, body: Body) -> Response:
    return Reply(verbs.note(platform, id, caller=caller, message=Note.model_validate(body).message))
