"""A stand-in for the server, so that the page is tested without a model: drawn things, true masks.

It answers the routes of the HTTP API from a drawn scene: a red disc and a blue square. In the clip
the disc moves to the right, is away for some frames, and has a low score on some others.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from samgraph.serve.security import HEADERS
from tests.browser.scene import (
    AWAY,
    BLUE,
    FRAMES,
    HEIGHT,
    LOW,
    RATE,
    RED,
    WIDTH,
    Mask,
    X,
    disc,
    disc_at,
    mask_of,
    picture,
    ranges,
    reply_of,
    square,
)

MOMENT = 0.01  # seconds
PAGE = Path(__file__).resolve().parents[2] / "src" / "samgraph" / "serve" / "page"


@dataclass
class Clip:
    """The state of the open clip."""

    prompts: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    objects: dict[int, dict[str, Any]] = field(default_factory=dict)
    tracked: dict[int, set[int]] = field(default_factory=dict)
    done: int = 0
    cancelled: bool = False
    queue: list[int] = field(default_factory=list)

    @property
    def tracking(self) -> dict[str, int] | None:
        """What a reply says of a running track."""
        total = len(self.queue)
        return {"done": self.done, "total": total} if self.done < total else None


class Double:
    """The application, what it was asked, and how it should fail."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[tuple[str, Any]] = []
        self.documents: dict[str, Any] = {}
        self.uploads: list[tuple[str, int]] = []
        self.clip = Clip()
        self.frames, self.rate = FRAMES, float(RATE)
        self.interrupted: list[Any] = []
        self.holds_at: int | None = None  # a track stays there, after so many frames
        self.holds_predictions = False
        self.refused: str | None = None  # the ending of a path that is answered with 503
        self.is_mute = False  # a track ends without an event
        self.at_once = self.most_at_once = 0  # predictions
        self.failures: list[tuple[str, int, str, str]] = []  # path ending, status, message, hint
        self.app = Starlette(routes=self._routes())

    def _routes(self) -> list[Any]:
        def route(path: str, handler: Any, *methods: str) -> Route:
            async def answer(request: Request) -> Response:
                return await self._answered(request, handler)

            return Route(path, answer, methods=list(methods or ("GET",)))

        image, video = "/api/images/{id}", "/api/videos/{id}"
        return [
            route("/", self._page),
            route("/api/info", self._info),
            route("/api/sessions", self._sessions),
            route("/api/samples/{id}/thumbnail", self._picture),
            route("/api/images", self._post_image, "POST"),
            route(image, self._get_image, "GET", "DELETE"),
            route(f"{image}/picture", self._picture),
            route(f"{image}/predict", self._predict, "POST"),
            route(f"{image}/everything", self._everything, "POST"),
            route(f"{image}/document", self._document, "PUT"),
            route(f"{image}/export", self._export_image, "POST"),
            route("/api/videos", self._post_video, "POST"),
            route(video, self._get_video, "GET", "DELETE"),
            route(f"{video}/frames/{{frame:int}}", self._frame),
            route(f"{video}/frames/{{frame:int}}/predict", self._predict_frame, "POST"),
            route(f"{video}/prompts", self._prompt, "POST"),
            route(f"{video}/objects", self._post_object, "POST"),
            route(f"{video}/objects/{{object:int}}", self._change_object, "PATCH", "DELETE"),
            route(f"{video}/objects/{{object:int}}/prompts/{{frame:int}}", self._clear, "DELETE"),
            route(f"{video}/track", self._track, "POST", "DELETE"),
            route(f"{video}/events", self._events),
            route(f"{video}/masks", self._masks),
            route(f"{video}/timeline", self._timeline),
            route(f"{video}/export", self._export_video, "POST"),
            route(f"{video}/session", self._session),
            route("/api/jobs/{job}", self._job),
            route("/api/jobs/{job}/file", self._job_file),
            Mount("/static", StaticFiles(directory=PAGE)),
        ]

    async def _answered(self, request: Request, handler: Any) -> Response:
        path = request.url.path
        self.requests.append((request.method, path))
        if self.refused and path.endswith(self.refused):
            return JSONResponse({"error": {"code": "stopping", "message": "stopping"}}, 503)
        for failure in self.failures:
            if path.endswith(failure[0]):
                self.failures.remove(failure)
                error = {"code": "bad_input", "message": failure[2], "hint": failure[3]}
                return JSONResponse({"error": error}, failure[1])
        body: Any = None
        if request.headers.get("content-type", "").startswith("application/json"):
            body = json.loads(await request.body() or b"null")
            self.bodies.append((path, body))
        reply: Response = await handler(request, body)
        reply.headers.update(HEADERS)
        reply.headers.setdefault("cache-control", "no-cache")
        return reply

    def asked(self, method: str, ending: str) -> int:
        """How many requests there were."""
        return sum(m == method and path.endswith(ending) for m, path in self.requests)

    def last(self, ending: str) -> Any:
        """The last body that was sent to a path; empty, if none was."""
        return next((body for path, body in reversed(self.bodies) if path.endswith(ending)), {})

    @property
    def clicked(self) -> Any:
        """The last prediction that a click asked for: a preview may arrive after it."""
        found = (body for path, body in reversed(self.bodies) if path.endswith("/predict"))
        return next((body for body in found if "refine" in body), {})

    async def _page(self, request: Request, body: Any) -> Response:
        return FileResponse(PAGE / "index.html")

    async def _info(self, request: Request, body: Any) -> Response:
        formats = [
            {"name": "png", "extension": ".png", "title": "the mask"},
            {"name": "coco", "extension": ".json", "title": "COCO annotations"},
            {"name": "effect", "extension": ".png", "title": "the image with the effect"},
        ]
        number = {"name": "strength", "min": 0, "max": 1, "default": 1}
        effects = [
            {"name": "cutout", "title": "Cut out", "target": "background", "params": []},
            {"name": "grey", "title": "Grey", "target": "background", "params": [number]},
        ]
        samples = [
            {"id": "scene", "title": "A scene", "kind": "image"},
            {"id": "clip", "title": "A clip", "kind": "video"},
        ]
        return JSONResponse({
            "version": "0", "model": {"name": "drawn", "image_size": 512}, "engine": "none",
            "device": "cpu", "precision": "fp32",
            "limits": {
                "max_upload_bytes": 10**5, "max_pixels": 10**8, "max_sessions": 9,
                "idle_seconds": 60,
            },
            "formats": {"image": formats, "video": formats}, "effects": effects,
            "samples": [{**s, "thumbnail": f"/api/samples/{s['id']}/thumbnail"} for s in samples],
        })  # fmt: skip

    async def _sessions(self, request: Request, body: Any) -> Response:
        return JSONResponse([])

    async def _post_image(self, request: Request, body: Any) -> Response:
        name = request.headers.get("x-filename", "scene.png")
        self.uploads.append((name, len(await request.body())))
        size = {"width": WIDTH, "height": HEIGHT}
        return JSONResponse(
            {"id": f"i{len(self.uploads)}", "name": name, "seconds": 0.1, **size}, 201
        )

    async def _get_image(self, request: Request, body: Any) -> Response:
        if request.method == "DELETE":
            return Response(status_code=204)
        name = request.path_params["id"]
        reply = {"id": name, "name": "scene.png", "width": WIDTH, "height": HEIGHT, "seconds": 0}
        return JSONResponse({**reply, "document": self.documents.get(name)})

    async def _picture(self, request: Request, body: Any) -> Response:
        return Response(picture([(disc(), RED), (square(), BLUE)]), media_type="image/jpeg")

    async def _predict(self, request: Request, body: Any) -> Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        while self.holds_predictions:
            await asyncio.sleep(MOMENT)
        self.at_once -= 1
        return self._three(mask_of(body, [disc(), square()]))

    async def _predict_frame(self, request: Request, body: Any) -> Response:
        return self._three(mask_of(body, self._shapes(request.path_params["frame"])))

    def _three(self, mask: Mask) -> Response:
        """Candidates: the left half, the thing, and the thing with a border."""
        xs = np.nonzero(mask)[1]
        half = mask & ((xs.mean() if len(xs) else 0) >= X)
        grown = np.array(Image.fromarray(mask).convert("L").resize((WIDTH, HEIGHT))) > 0
        for _ in range(8):
            grown[1:] |= grown[:-1]
            grown[:-1] |= grown[1:]
            grown[:, 1:] |= grown[:, :-1]
            grown[:, :-1] |= grown[:, 1:]
        masks = [reply_of(half, 0.4), reply_of(mask, 0.95), reply_of(grown, 0.7)]
        return JSONResponse({"masks": masks, "best": 1, "refine": "t"})

    async def _everything(self, request: Request, body: Any) -> Response:
        return JSONResponse(
            {
                "masks": [
                    reply_of(disc(), 0.9),
                    reply_of(square(), 0.9),
                    reply_of(disc(radius=20), 0.8),
                ]
            }
        )

    async def _document(self, request: Request, body: Any) -> Response:
        self.documents[request.path_params["id"]] = body
        return Response(status_code=204)

    async def _export_image(self, request: Request, body: Any) -> Response:
        return _file(json.dumps(body).encode(), f"scene.{body['format']}.json")

    async def _post_video(self, request: Request, body: Any) -> Response:
        self.clip = Clip()
        if "session" in request.query_params:
            async with request.form() as form:
                self.uploads.append((form["session"].filename, 0))  # type: ignore[union-attr,arg-type]
        return JSONResponse(self._video(), 201)

    def _video(self) -> dict[str, Any]:
        size = {"width": WIDTH, "height": HEIGHT, "frames": self.frames, "fps": self.rate}
        objects = [
            {"id": i, **o, "prompts": sorted(self.clip.prompts.get(i, {}))}
            for i, o in self.clip.objects.items()
        ]
        return {
            "id": "v1",
            "name": "clip.mp4",
            "duration": self.frames / self.rate,
            **size,
            "objects": objects,
            "tracking": self.clip.tracking,
            "interrupted": self.interrupted,
        }

    async def _get_video(self, request: Request, body: Any) -> Response:
        return JSONResponse(self._video())

    def _shapes(self, frame: int) -> list[Mask]:
        return [] if frame in AWAY else [disc(disc_at(frame), 40)]

    async def _frame(self, request: Request, body: Any) -> Response:
        frame = request.path_params["frame"]
        width = int(request.query_params.get("width", WIDTH))
        shapes = [(mask, RED) for mask in self._shapes(frame)]
        return Response(
            picture(shapes, width), media_type="image/jpeg", headers={"cache-control": "max-age=99"}
        )

    def _known(self, frame: int) -> list[dict[str, Any]]:
        """The objects of a frame: where prompted, what was asked for; where tracked, the disc."""
        found = []
        for name in self.clip.objects:
            prompt = self.clip.prompts.get(name, {}).get(frame)
            tracked = frame in self.clip.tracked.get(name, set())
            if prompt is None and not tracked:
                continue
            shapes = self._shapes(frame)
            mask = (
                mask_of(prompt, shapes)
                if prompt
                else np.logical_or.reduce([disc(radius=0) & False, *shapes])
            )
            score = 0.3 if frame in LOW else 0.9
            found.append({"id": name, **reply_of(mask, score), "present": bool(mask.any())})
        return found

    async def _prompt(self, request: Request, body: Any) -> Response:
        self.clip.prompts.setdefault(body["object"], {})[body["frame"]] = body
        return JSONResponse({"frame": body["frame"], "objects": self._known(body["frame"])})

    async def _post_object(self, request: Request, body: Any) -> Response:
        name = 11 + len(self.requests)  # not the number the page would have taken
        self.clip.objects[name] = body
        return JSONResponse({"id": name, **body}, 201)

    async def _change_object(self, request: Request, body: Any) -> Response:
        name = request.path_params["object"]
        if request.method == "DELETE":
            for part in (self.clip.objects, self.clip.prompts, self.clip.tracked):
                part.pop(name, None)
            return Response(status_code=204)
        self.clip.objects[name].update(body)
        return JSONResponse({"id": name, **self.clip.objects[name]})

    async def _clear(self, request: Request, body: Any) -> Response:
        self.clip.prompts[request.path_params["object"]].pop(request.path_params["frame"], None)
        return Response(status_code=204)

    async def _track(self, request: Request, body: Any) -> Response:
        if request.method == "DELETE":
            self.clip.cancelled = True
            return Response(status_code=204)
        later = list(range(body["start"], self.frames))
        self.clip.queue = later + (
            list(range(body["start"])) if body["direction"] == "both" else []
        )
        self.clip.cancelled, self.clip.done = False, 0
        return JSONResponse({"total": len(self.clip.queue)}, 202)

    async def _events(self, request: Request, body: Any) -> Response:
        return StreamingResponse(self._progress(), media_type="text/event-stream")

    async def _progress(self) -> AsyncIterator[str]:
        """Events of the track; a browser that connects again gets those that are left."""
        clip, total = self.clip, len(self.clip.queue)
        yield "retry: 50\n\n"
        while self.is_mute:
            clip.done = total
            await asyncio.sleep(MOMENT)
        while clip.done < total:
            if self.refused:
                return
            await asyncio.sleep(MOMENT if clip.done != self.holds_at else 10 * MOMENT)
            if clip.cancelled:
                yield "event: cancelled\ndata: {}\n\n"
                return
            if clip.done != self.holds_at:
                for name in clip.objects:
                    clip.tracked.setdefault(name, set()).add(clip.queue[clip.done])
                clip.done += 1
            progress = {
                "frame": clip.queue[clip.done - 1],
                "done": clip.done,
                "total": total,
                "fps": 50.0,
                "seconds_left": (total - clip.done) * 0.5,
                "objects": [],
            }
            yield f"id: {clip.done}\nevent: progress\ndata: {json.dumps(progress)}\n\n"
        yield "event: done\ndata: {}\n\n"

    async def _masks(self, request: Request, body: Any) -> Response:
        first, last = int(request.query_params["from"]), int(request.query_params["to"])
        frames = [{"frame": n, "objects": self._known(n)} for n in range(first, last + 1)]
        return JSONResponse({"frames": [entry for entry in frames if entry["objects"]]})

    async def _timeline(self, request: Request, body: Any) -> Response:
        objects, review = [], []
        for name in self.clip.objects:
            tracked = self.clip.tracked.get(name, set())
            objects.append({
                "id": name, "prompts": sorted(self.clip.prompts.get(name, {})),
                "tracked": ranges(tracked), "present": ranges(tracked - set(AWAY)),
                "low": ranges(tracked & set(LOW)), "stale": [],
            })  # fmt: skip
            if AWAY[0] in tracked:
                review.append({"frame": AWAY[0], "object": name, "reason": "disappeared"})
            if LOW[0] in tracked:
                review.append({"frame": LOW[0], "object": name, "reason": "low score"})
        return JSONResponse({"frames": self.frames, "objects": objects, "review": review})

    async def _export_video(self, request: Request, body: Any) -> Response:
        return JSONResponse({"job": "j1"}, 202)

    async def _session(self, request: Request, body: Any) -> Response:
        return _file(b"session", "clip.session.zip")

    async def _job(self, request: Request, body: Any) -> Response:
        polls = self.asked("GET", "/jobs/j1")
        return JSONResponse(
            {"state": "running" if polls < 2 else "done", "done": polls, "total": 2}
        )

    async def _job_file(self, request: Request, body: Any) -> Response:
        return _file(b"video", "clip.zip")


def _file(data: bytes, name: str) -> Response:
    return Response(data, headers={"content-disposition": f'attachment; filename="{name}"'})
