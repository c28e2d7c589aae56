"""Records the reference's video predictor through a session of clicks, corrections and tracking."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.golden import scenes
from tests.golden.reading import disc_mask
from tests.golden.recording import Recorder
from tests.parity.reference import to_numpy

Array = npt.NDArray[Any]
Event = tuple[str, dict[str, Any], str]

# The calls in order, with pixels of the 160 x 120 frames; `mask` names the disc of `disc_mask(120)`
# in the left 120 columns.
SESSION: tuple[Event, ...] = (
    ("add_new_points_or_box", {"frame_idx": 0, "obj_id": 1, "box": [17, 27, 63, 73]}, "box"),
    ("propagate_in_video", {}, "one object, forward"),
    (
        "add_new_points_or_box",
        {"frame_idx": 3, "obj_id": 2, "points": [[118, 66]], "labels": [1]},
        "new object after tracking: a conditioning frame",
    ),
    (
        "add_new_points_or_box",
        {
            "frame_idx": 3,
            "obj_id": 2,
            "points": [[90, 20]],
            "labels": [0],
            "clear_old_points": False,
        },
        "second click: previous logits, clamped to +-32, are the mask prompt",
    ),
    (
        "add_new_points_or_box",
        {"frame_idx": 6, "obj_id": 1, "points": [[100, 62]], "labels": [1]},
        "correction of a tracked frame: stored as NON-conditioning",
    ),
    (
        "propagate_in_video",
        {"start_frame_idx": 7, "max_frame_num_to_track": 1},
        "yields 2 frames; the corrected frame 6 is in memory",
    ),
    (
        "propagate_in_video",
        {},
        "all again: the correction is overwritten; object 2 is tracked on frames 0 to 2 from the "
        "future, without pointers",
    ),
    ("propagate_in_video", {"start_frame_idx": 5, "reverse": True}, "backward"),
    ("add_new_mask", {"frame_idx": 8, "obj_id": 3, "mask": "disc"}, "a mask as prompt"),
    ("propagate_in_video", {"start_frame_idx": 8}, "three objects"),
)


def record_video(model: Any, memory: str, limit: int = 600) -> Recorder:
    """Everything in the file `video_<config>[_fp32mem].npz`; `memory` is bfloat16 or float32."""
    recorder = Recorder(limit)
    watched = _Watched(model, keep_float32=memory == "float32")
    with tempfile.TemporaryDirectory() as folder:
        scenes.write_frames(Path(folder))
        state = _quietly(lambda: model.init_state(folder))
    recorder.add("frame00000_input", to_numpy(state["images"][0]))
    events = []
    for number, (call, arguments, note) in enumerate(SESSION):
        watched.event = number
        event: dict[str, Any] = {"call": call, "args": arguments, "note": note}
        prefix = f"e{number:02d}_"
        if call == "propagate_in_video":
            event["frames"] = _propagate(recorder, model, state, prefix, arguments)
        else:
            event["stored_as"] = _prompt(recorder, model, state, prefix, call, arguments)
        event["obj_ids"] = list(state["obj_ids"])
        events.append(event)
    recorder.meta |= {
        "scene": "scenes.frames(10)",
        "num_frames": scenes.FRAMES,
        "video_hw": [scenes.HEIGHT, scenes.WIDTH],
        "memory_dtype": memory,
        "events": events,
        "memory_attention_calls": watched.reads,
        "decisions": watched.decisions,
        "margins": _margins(watched.decisions),
        "fill_hole_area": 0,
    }
    watched.undo()
    return recorder


def mask_prompt() -> npt.NDArray[np.bool_]:
    """The mask prompt of the session, [HEIGHT, WIDTH]."""
    mask = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.bool_)
    mask[:, : scenes.HEIGHT] = disc_mask(scenes.HEIGHT)
    return mask


def _prompt(
    recorder: Recorder, model: Any, state: Any, prefix: str, call: str, arguments: dict[str, Any]
) -> str:
    """One prompt; returns where its outcome is stored."""
    given = dict(arguments)
    if "mask" in given:
        given["mask"] = mask_prompt()
    _, _, masks = getattr(model, call)(state, **given)
    index = state["obj_id_to_idx"][given["obj_id"]]
    stores = state["temp_output_dict_per_obj"][index]
    store: str = next(key for key in stores if given["frame_idx"] in stores[key])
    out = stores[store][given["frame_idx"]]
    recorder.add(prefix + "low", to_numpy(out["pred_masks"])[0, 0])
    recorder.add(prefix + "score", to_numpy(out["object_score_logits"])[0])
    recorder.add(prefix + "ptr", to_numpy(out["obj_ptr"])[0])
    recorder.bits(prefix + "bits", to_numpy(masks > 0)[:, 0])
    return store


def _propagate(
    recorder: Recorder, model: Any, state: Any, prefix: str, arguments: dict[str, Any]
) -> list[int]:
    """One propagation; returns the frames it yielded."""
    seen = []
    for frame, ids, masks in _quietly(lambda: list(_copied(model, state, arguments))):
        at = f"{prefix}f{frame:05d}_"
        seen.append(frame)
        recorder.add(at + "low", np.stack([out["low"] for out in ids]))
        recorder.add(at + "score", np.concatenate([out["score"] for out in ids]))
        recorder.add(at + "ptr", np.stack([out["ptr"] for out in ids]))
        recorder.add(at + "is_cond", np.array([out["is_cond"] for out in ids]))
        for i, out in enumerate(ids):
            recorder.add(f"{at}mem{i}", out["mem"], limit=400)
        recorder.bits(at + "bits", masks)
    return seen


def _copied(model: Any, state: Any, arguments: dict[str, Any]) -> Any:
    """Propagate, with each object's outcome taken down before the next frame."""
    for frame, _, masks in model.propagate_in_video(state, **arguments):
        outs = []
        for stores in state["output_dict_per_obj"].values():
            is_cond = frame in stores["cond_frame_outputs"]
            out = stores["cond_frame_outputs" if is_cond else "non_cond_frame_outputs"][frame]
            outs.append(
                {
                    "low": to_numpy(out["pred_masks"])[0, 0],
                    "score": to_numpy(out["object_score_logits"])[0],
                    "ptr": to_numpy(out["obj_ptr"])[0],
                    "mem": to_numpy(out["maskmem_features"]),
                    "is_cond": is_cond,
                }
            )
        yield frame, outs, to_numpy(masks > 0)[:, 0]


class _Watched:
    """Notes what memory attention reads and what the decoder decides, and feeds it float32.

    The reference stores memory as bfloat16 and would raise where no pointer promotes it; here it
    is cast just before memory attention. With `keep_float32` it is never rounded at all.
    """

    def __init__(self, model: Any, *, keep_float32: bool) -> None:
        self.model = model
        self.event = 0
        self.reads: list[dict[str, Any]] = []
        self.decisions: list[dict[str, Any]] = []
        self._replaced: list[str] = []
        self._read: list[tuple[int, str]] = []
        self._counts = {"num_spatial_tokens": 0, "num_pointer_tokens": 0}
        self._memory: Any = None
        self._attend = model.memory_attention.forward
        model.memory_attention.forward = self._attention
        self._wrap("_prepare_memory_conditioned_features", self._prepare)
        if keep_float32:
            self._wrap("_encode_new_memory", self._encode)
            self._wrap("_run_single_frame_inference", self._single)
            self._wrap("_run_memory_encoder", self._rerun)
        self._predict = model.sam_mask_decoder.predict_masks
        model.sam_mask_decoder.predict_masks = self._decide

    def _wrap(self, name: str, method: Callable[..., Any]) -> None:
        original = getattr(self.model, name)
        self._replaced.append(name)
        setattr(self.model, name, lambda *args, **named: method(original, *args, **named))

    def undo(self) -> None:
        """Give the model its own methods back."""
        for name in self._replaced:
            delattr(self.model, name)
        del self.model.memory_attention.forward
        del self.model.sam_mask_decoder.predict_masks

    def _encode(self, original: Callable[..., Any], **named: Any) -> Any:
        self._memory, positions = original(**named)
        return self._memory, positions

    def _single(self, original: Callable[..., Any], **named: Any) -> Any:
        out, masks = original(**named)
        if out["maskmem_features"] is not None:
            out["maskmem_features"] = self._memory
        return out, masks

    def _rerun(self, original: Callable[..., Any], **named: Any) -> Any:
        _, positions = original(**named)
        return self._memory, positions

    def _attention(self, **named: Any) -> Any:
        memory, pointers = named["memory"], named["num_obj_ptr_tokens"]
        self._counts = {
            "num_spatial_tokens": memory.shape[0] - pointers,
            "num_pointer_tokens": pointers,
        }
        self._memory_pos = named["memory_pos"]
        return self._attend(**(named | {"memory": memory.to(self.model.no_mem_embed.dtype)}))

    def _prepare(self, original: Callable[..., Any], **named: Any) -> Any:
        stores, frame = named["output_dict"], named["frame_idx"]
        self._read = []
        watched = {
            key: {t: _Noted(out, t, self._read) for t, out in store.items()}
            for key, store in stores.items()
        }
        result = original(**(named | {"output_dict": watched}))
        call: dict[str, Any] = {
            "event": self.event,
            "frame": frame,
            "is_init_cond_frame": named["is_init_cond_frame"],
            "reverse": named["track_in_reverse"],
        }
        if not named["is_init_cond_frame"]:
            memory = [t for t, key in self._read if key == "maskmem_features"]
            last = self.model.num_maskmem - 1
            cond = stores["cond_frame_outputs"]
            rows = [(t, last if t in cond else abs(frame - t) - 1) for t in memory]
            self._check_rows(rows, stores)
            call |= self._counts | {"memory_frames_and_tpos_row": rows}
            call["pointer_frames"] = [t for t, key in self._read if key == "obj_ptr"]
        self.reads.append(call)
        return result

    def _check_rows(self, rows: list[tuple[int, int]], stores: Any) -> None:
        """The rows of `maskmem_tpos_enc` that we claim are those in the positions it was given."""
        at = 0
        for t, row in rows:
            out = {**stores["non_cond_frame_outputs"], **stores["cond_frame_outputs"]}[t]
            own = out["maskmem_pos_enc"][-1].flatten(2).permute(2, 0, 1)
            given = self._memory_pos[at : at + own.shape[0]]
            at += own.shape[0]
            if float((given - own - self.model.maskmem_tpos_enc[row]).abs().max()) > 1e-5:
                raise RuntimeError(f"memory frame {t} does not use row {row}")

    def _decide(self, **named: Any) -> Any:
        masks, ious, tokens, score = self._predict(**named)
        stability = self.model.sam_mask_decoder._get_stability_scores(masks)
        top = ious[0, 1:].sort(descending=True).values
        self.decisions.append(
            {
                "event": self.event,
                "prompt_tokens": named["sparse_prompt_embeddings"].shape[1],
                "iou4": [round(float(iou), 6) for iou in ious[0]],
                "iou_top2_gap": float(top[0] - top[1]),
                "stability_token0": float(stability[0, 0]),
                "object_score": float(score[0, 0]),
            }
        )
        return masks, ious, tokens, score


class _Noted(dict[str, Any]):
    """One frame's outcome that notes which parts of it are read, in order."""

    def __init__(self, out: dict[str, Any], frame: int, read: list[tuple[int, str]]) -> None:
        super().__init__(out)
        self._frame, self._read = frame, read

    def __getitem__(self, key: str) -> Any:
        self._read.append((self._frame, key))
        return super().__getitem__(key)


def _margins(decisions: list[dict[str, Any]]) -> dict[str, float]:
    """How far the closest decision is from turning out otherwise."""
    # A click or nothing, with its padding point, gives 2 prompt tokens and three masks; two points
    # or a box give 3 or more and one mask.
    several = [d for d in decisions if d["prompt_tokens"] <= 2]
    single = [d for d in decisions if d["prompt_tokens"] > 2]
    return {
        "min_abs_object_score": min(abs(d["object_score"]) for d in decisions),
        "min_iou_gap_multimask": min(d["iou_top2_gap"] for d in several),
        "min_stability_margin_single": min(abs(d["stability_token0"] - 0.98) for d in single),
    }


def _quietly(call: Callable[[], Any]) -> Any:
    """Run the call without the reference's progress bars."""
    from unittest.mock import patch

    def plain(items: Any, **_: Any) -> Any:
        return items

    with patch("sam2.sam2_video_predictor.tqdm", plain), patch("sam2.utils.misc.tqdm", plain):
        return call()
