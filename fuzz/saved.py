"""Targets that read what samgraph saved: sessions, embeddings, entries of the graph cache."""

import json
import random
import struct
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz.mutators import NUMBERS, mutate_bytes, mutate_json, mutate_text
from fuzz.target import BrokenPromiseError, Target
from fuzz.weights import SMALL, Arrays, mutate_arrays, safetensors
from samgraph.errors import CheckpointError, ImageError, OptionError, VideoError
from samgraph.models.sam2.config import find_config
from samgraph.models.sam2.model import Sam2Model
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.predict.features import Embedding, fingerprint
from samgraph.predict.image.encoded import encode_image
from samgraph.predict.video.automatic import THUMBNAIL as THUMBNAIL_SIDE
from samgraph.predict.video.policies.history import COLUMNS
from samgraph.predict.video.policies.motion import MotionAwarePolicy
from samgraph.predict.video.policies.table import policy_record
from samgraph.predict.video.policy import ReferencePolicy
from samgraph.predict.video.session_schema import FRAME, THUMBNAIL, VERSION
from samgraph.predict.video.sessions import KEY as SESSION_KEY
from samgraph.predict.video.sessions import resume
from samgraph.runtime import cache
from samgraph.runtime.cache import GraphCache
from tests.checkpoint import making

SIZE_HW, FRAMES = (6, 8), 5


def small_model() -> Sam2Model:
    """A model of few channels without weights, whose graphs are never run."""
    return Sam2Model(find_config(SMALL), {})


class SessionTarget(Target):
    """A saved video or stream, up to objects that are ready to be tracked on."""

    name, seconds, megabytes = "session", 2.0, 256
    errors = (CheckpointError, OptionError, VideoError)

    @cached_property
    def model(self) -> Sam2Model:
        return small_model()

    @cached_property
    def frames(self) -> list[NDArray[np.uint8]]:
        return [np.zeros((*SIZE_HW, 3), np.uint8) for _ in range(FRAMES)]

    def sessions(self) -> list[tuple[dict[str, Any], Arrays]]:
        shared = {
            "version": VERSION, "config": "small", "model": fingerprint(self.model),
            "approximation": None, "length": FRAMES, "memory_precision": "bf16",
            "objects_at_once": 4,
            "display": {"mask_threshold": 0.0, "score_threshold": 0.0, "overlaps": True,
                        "fill_holes": 0},
            "policy": policy_record(ReferencePolicy()),
            "numbers": [{"name": 1, "number": 1}, {"name": "two", "number": 2}],
            "objects": [
                {"name": 1, "prompted": [0], "tracked": [1], "answers": {"0": [3.5, 0.9]},
                 "prompts": [0], "waiting": [], "runs": {"0": [0, 1]}},
                {"name": "two", "prompted": [], "tracked": [], "answers": {"1": [0.1, 0.2]},
                 "prompts": [1], "waiting": [1], "runs": {}},
            ],
        }  # fmt: skip
        video = {"source": None, "size_hw": list(SIZE_HW), "frames": FRAMES, "is_going_back": False}
        tensors = session_tensors(self.model.config)
        stream = {
            "policy": policy_record(MotionAwarePolicy()),
            "automatic": {"next_id": 3, "searched": 1, "objects": [
                {"name": 1, "born": 0, "missed": 2, "area": 9},
            ]},
            "detections": {"match_iou": 0.5, "min_score": 0.0, "end_after": 30, "max_objects": 64},
        }  # fmt: skip
        more: Arrays = {
            FRAME: self.frames[0],
            THUMBNAIL: np.zeros((THUMBNAIL_SIDE, THUMBNAIL_SIDE), np.uint8),
            "object.0.observed": np.array([0, 1], np.int64),
            "object.0.observations": np.ones((2, COLUMNS), np.float32),
        }
        return [
            ({**shared, **video, "kind": "video", "position": 2}, tensors),
            ({**shared, **stream, "kind": "stream", "position": 2}, {**tensors, **more}),
        ]

    def make(self, rng: random.Random) -> bytes:
        record, tensors = rng.choice(self.sessions())
        if rng.random() < 0.8:
            record = mutate_json(rng, record)
        text = json.dumps(record)
        text = mutate_text(rng, text) if rng.random() < 0.1 else text
        return safetensors(rng, mutate_arrays(rng, tensors), {SESSION_KEY: text})

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "session.safetensors"
        path.write_bytes(data)
        try:
            session = resume(self.model, path)  # a stream, or a video beside the session
        except (OptionError, VideoError):
            session = resume(self.model, path, source=self.frames)
        download = self.model.buffers.download
        for obj in session.states.values():
            for memory in (*obj.bank.prompted.values(), *obj.bank.tracked.values()):
                pages = [page for page in (memory.mask, memory.pointer) if page is not None]
                if not all(np.isfinite(download(page.buffer)).all() for page in pages):
                    raise BrokenPromiseError("its memory has values that are not finite")

    def good(self) -> list[bytes]:
        return [
            making.safetensors_bytes(tensors, {SESSION_KEY: json.dumps(record)})
            for record, tensors in self.sessions()
        ]


def session_tensors(config: TrackerConfig) -> Arrays:
    """The tensors of two objects as `SessionTarget` describes them."""
    pointer = np.zeros(config.channels, np.float32)
    logits = np.zeros((config.mask_size, config.mask_size), np.float32)
    tensors: Arrays = {
        "object.0.prompted.0.mask": np.zeros((config.grid**2, config.memory_channels), np.uint16),
        "object.0.prompted.0.pointer": pointer,
        "object.0.tracked.1.pointer": pointer,
        "object.0.answer.0.logits": logits,
        "object.0.answer.0.pointer": pointer,
        "object.0.prompt.0.points": np.ones((3, 2), np.float32),
        "object.0.prompt.0.labels": np.array([2, 3, 1], np.int64),
        "object.0.passed": np.array([[0, 0], [1, 0]], np.int64),
        "object.1.answer.1.logits": logits,
        "object.1.answer.1.pointer": pointer,
        "object.1.prompt.1.points": np.zeros((0, 2), np.float32),
        "object.1.prompt.1.labels": np.zeros(0, np.int64),
        "object.1.prompt.1.mask": np.ones(SIZE_HW, np.bool_),
        "object.1.passed": np.zeros((0, 2), np.int64),
    }
    return tensors


class EmbeddingTarget(Target):
    """A saved embedding, up to an image that is ready for prompts."""

    name, errors, seconds, megabytes = "embedding", (ImageError,), 1.0, 256

    @cached_property
    def model(self) -> Sam2Model:
        return small_model()

    def parts(self) -> tuple[dict[str, Any], Arrays]:
        shapes = self.model.feature_shapes
        about = {"size_hw": [60, 80], "name": "a.png", "fingerprint": fingerprint(self.model)}
        return about, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def make(self, rng: random.Random) -> bytes:
        about, maps = self.parts()
        record = mutate_json(rng, about) if rng.random() < 0.8 else about
        text = json.dumps(record)
        text = mutate_text(rng, text) if rng.random() < 0.1 else text
        maps = mutate_arrays(rng, maps) if rng.random() < 0.5 else maps
        return safetensors(rng, maps, {"samgraph.embedding": text})

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "embedding.safetensors"
        path.write_bytes(data)
        image = encode_image(self.model, Embedding.load(path))
        if image.size_hw[0] * image.size_hw[1] > 64_000_000:
            raise BrokenPromiseError("it has more pixels than allowed")

    def good(self) -> list[bytes]:
        about, maps = self.parts()
        return [making.safetensors_bytes(maps, {"samgraph.embedding": json.dumps(about)})]


class CacheTarget(Target):
    """An entry of the graph cache, whole or as anything else; it must never raise."""

    name, errors, seconds, megabytes = "cache", (), 0.5, 128
    content = bytes(range(256)) * 4

    def entry(self) -> bytes:
        return cache._head("key", self.content) + self.content

    def make(self, rng: random.Random) -> bytes:
        raw = mutate_bytes(rng, self.entry())
        if rng.random() < 0.2:  # the right sum over wrong content, under another key
            key = rng.choice(("key", "other", "kez", ""))
            body = mutate_bytes(rng, self.content)
            raw = cache._head(key, body) + body
            if rng.random() < 0.3:
                at = cache._HEAD.size - 40
                raw = raw[:at] + struct.pack("<Q", rng.choice(NUMBERS[:30])) + raw[at + 8 :]
        return raw

    def use(self, data: bytes, folder: Path) -> None:
        graphs = folder / "graphs"
        graphs.mkdir(exist_ok=True, mode=0o700)
        path = graphs / "key.blob"
        path.write_bytes(data)
        path.chmod(0o600)
        found = GraphCache(folder).load("key")
        right = data.startswith(cache._MAGIC + b"key\0")
        if found is not None and (not right or not data.endswith(found)):
            raise BrokenPromiseError("an entry of another graph was taken")
        if found is None and path.exists():
            raise BrokenPromiseError("a bad entry was left there")

    def good(self) -> list[bytes]:
        return [self.entry()]


TARGETS = (SessionTarget, EmbeddingTarget, CacheTarget)
