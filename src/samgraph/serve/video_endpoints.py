"""The table of the endpoints of videos."""

from samgraph.serve.endpoint import Endpoint, Query
from samgraph.serve.image_routes import SAMPLE
from samgraph.serve.schema import (
    FrameReply,
    FramesReply,
    JobReply,
    JobState,
    ObjectBody,
    PredictBody,
    PredictReply,
    TimelineReply,
    TrackBody,
    TrackReply,
    VideoExportBody,
    VideoObject,
    VideoPromptBody,
    VideoReply,
)
from samgraph.serve.video_routes import (
    delete_job,
    delete_object,
    delete_prompt,
    delete_track,
    delete_video,
    get_events,
    get_frame,
    get_job,
    get_job_file,
    get_masks,
    get_session,
    get_timeline,
    get_video,
    hover_frame,
    patch_object,
    post_export,
    post_object,
    post_prompt,
    post_track,
    post_video,
)

NUMBER = {"type": "integer", "minimum": 0}

_ID = "/api/videos/{id}"
ENDPOINTS = (
    Endpoint(
        "POST", "/api/videos", post_video, "upload a video, or a video and a session of it",
        body=bytes, reply=VideoReply, status=201, queries=(SAMPLE,),
    ),
    Endpoint("GET", _ID, get_video, "a video, its objects and its track", reply=VideoReply),
    Endpoint("DELETE", _ID, delete_video, "delete a video", status=204),
    Endpoint(
        "GET", f"{_ID}/frames/{{n:int}}", get_frame, "a frame", media="image/jpeg",
        queries=(Query("width", NUMBER, "its width in pixels"),),
    ),
    Endpoint(
        "POST", f"{_ID}/frames/{{n:int}}/predict", hover_frame,
        "the masks of a prompt on a frame, without memory", body=PredictBody, reply=PredictReply,
    ),
    Endpoint(
        "POST", f"{_ID}/objects", post_object, "a new object",
        body=ObjectBody, reply=VideoObject, status=201,
    ),
    Endpoint(
        "PATCH", f"{_ID}/objects/{{obj:int}}", patch_object, "another name or colour",
        body=ObjectBody, reply=VideoObject,
    ),
    Endpoint("DELETE", f"{_ID}/objects/{{obj:int}}", delete_object, "forget it", status=204),
    Endpoint(
        "POST", f"{_ID}/prompts", post_prompt, "prompt an object on a frame",
        body=VideoPromptBody, reply=FrameReply,
    ),
    Endpoint(
        "DELETE", f"{_ID}/objects/{{obj:int}}/prompts/{{frame:int}}", delete_prompt,
        "remove the prompts of an object on a frame", status=204,
    ),
    Endpoint(
        "POST", f"{_ID}/track", post_track, "begin to track",
        body=TrackBody, reply=TrackReply, status=202,
    ),
    Endpoint("DELETE", f"{_ID}/track", delete_track, "cancel the track", status=204),
    Endpoint(
        "GET", f"{_ID}/events", get_events, "the progress of the track", media="text/event-stream"
    ),
    Endpoint(
        "GET", f"{_ID}/masks", get_masks, "the masks of at most 64 frames", reply=FramesReply,
        queries=(
            Query("from", NUMBER, "the first frame"), Query("to", NUMBER, "the last frame"),
        ),
    ),
    Endpoint("GET", f"{_ID}/timeline", get_timeline, "the timeline", reply=TimelineReply),
    Endpoint(
        "POST", f"{_ID}/export", post_export, "begin an export",
        body=VideoExportBody, reply=JobReply, status=202,
    ),
    Endpoint(
        "GET", f"{_ID}/session", get_session, "the session as a file", media="application/zip"
    ),
    Endpoint("GET", "/api/jobs/{job}", get_job, "how far an export is", reply=JobState),
    Endpoint("DELETE", "/api/jobs/{job}", delete_job, "cancel an export", status=204),
    Endpoint(
        "GET", "/api/jobs/{job}/file", get_job_file, "what an export wrote",
        media="application/octet-stream",
    ),
)  # fmt: skip
