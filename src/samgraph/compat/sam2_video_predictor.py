"""The reference's video predictor: its methods, shapes, order of results, and quirks.

    predictor = build_sam2_video_predictor("configs/sam2.1/sam2.1_hiera_t.yaml", "weights.pt")
    state = predictor.init_state("frames/")
    predictor.add_new_points_or_box(state, frame_idx=0, obj_id=1, points=[[210, 350]], labels=[1])
    for frame_idx, obj_ids, mask_logits in predictor.propagate_in_video(state):
        masks = (mask_logits > 0.0).cpu().numpy()          # [N, 1, H, W]

Quirks that are kept: a correction of a tracked frame is stored as a tracked frame, and tracking it
again loses the correction; `max_frame_num_to_track=n` yields n + 1 frames; propagating in reverse
from frame 0 yields nothing; the list of ids that is yielded is the session's own.
`samgraph.load(...).video(...)` has none of them.

Masks are arrays with the methods of tensors (`samgraph.compat.tensor`).

The state is a dict with the reference's keys. As in the reference, all outputs are kept in it,
about 0.8 MB per object and frame at 1024 pixels; but frames are decoded when they are needed.

Differs from the original: holes are filled without CUDA; an object whose prompts are all on later
frames is tracked, where the original raises for lack of a pointer; folders may hold any images.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.host import to_host
from samgraph.compat.modeling.sam2_base import NO_OBJ_SCORE, SAM2Base
from samgraph.compat.tensor import Tensor, tensor
from samgraph.compat.utils import misc
from samgraph.compat.video_settings import VideoSettings, video_settings
from samgraph.compat.video_state import (
    COND,
    NON_COND,
    Output,
    State,
    all_frames,
    as_outcome,
    bank_read,
    close_up,
    expected_frames,
    feeding_from,
    given_clicks,
    initial_state,
    joined,
    new_object,
    number_of_objects,
    output_of,
    stored_clicks,
    with_memory,
)
from samgraph.media.image.preprocess import upscale_logits
from samgraph.models.family import BankRead, Features
from samgraph.predict.prompts import scale_points
from samgraph.predict.video.bank import STORED_AS
from samgraph.predict.video.feed import EncodedFrames, FrameFeed
from samgraph.predict.video.policy import Position, ReferencePolicy
from samgraph.predict.video.prompts import resize_mask
from samgraph.predict.video.result import without_overlaps
from samgraph.predict.video.step import (
    Clicks,
    Outcome,
    alike,
    click,
    outcomes_of,
    paint,
    remember_prompted,
    track_objects,
    without_holes,
)

Array = NDArray[Any]
Found = tuple[int, list[Any], Tensor]


class SAM2VideoPredictor(SAM2Base):
    """The reference's predictor on samgraph's model.

    `model` is what `samgraph.load` or `build_sam2` gave.
    """

    def __init__(self, model: Any, settings: VideoSettings | None = None) -> None:
        self.settings = settings or video_settings([], apply_postprocessing=True)
        super().__init__(model, falls_back=self.settings.dynamic_multimask_via_stability)
        most = self.settings.max_cond_frames_in_attn
        self._load_frames = misc.load_video_frames  # programs put another function there
        self._policy = ReferencePolicy.of(
            self.core.config,
            max_prompted=None if most == -1 else most,
            stride=self.settings.memory_temporal_stride_for_eval,
        )
        self._stored = STORED_AS[self.settings.memory_precision]

    @classmethod
    def from_pretrained(cls, model_id: str, **kwargs: Any) -> "SAM2VideoPredictor":
        """A predictor by the name of its repository, such as `facebook/sam2.1-hiera-tiny`."""
        from samgraph.compat.build_sam import build_sam2_video_predictor_hf

        kwargs.setdefault("vos_optimized", issubclass(cls, SAM2VideoPredictorVOS))
        return build_sam2_video_predictor_hf(model_id, **kwargs)

    @property
    def fill_hole_area(self) -> int:
        """The largest hole that is filled, in pixels of low-resolution masks."""
        return self.settings.fill_hole_area

    @fill_hole_area.setter
    def fill_hole_area(self, area: int) -> None:
        self.settings = replace(self.settings, fill_hole_area=int(area))

    @property
    def non_overlap_masks(self) -> bool:
        """Whether at most one object has each pixel of the masks that are returned."""
        return self.settings.non_overlap_masks

    @non_overlap_masks.setter
    def non_overlap_masks(self, is_wanted: bool) -> None:
        self.settings = replace(self.settings, non_overlap_masks=bool(is_wanted))

    def init_state(
        self,
        video_path: Any,
        offload_video_to_cpu: bool = False,
        offload_state_to_cpu: bool = False,
        async_loading_frames: bool = False,
    ) -> State:
        """A session for a folder of images, a video file, or a list of frames."""
        images, height, width = self._load_frames(
            video_path=video_path,
            image_size=self.image_size,
            offload_video_to_cpu=offload_video_to_cpu,
            async_loading_frames=async_loading_frames,
            compute_device=self.device,
        )
        return initial_state(
            images,
            (int(height), int(width)),
            self.core,
            offload_video_to_cpu=offload_video_to_cpu,
            offload_state_to_cpu=offload_state_to_cpu,
        )

    def add_new_points_or_box(
        self,
        inference_state: State,
        frame_idx: int,
        obj_id: Any,
        points: Any = None,
        labels: Any = None,
        clear_old_points: bool = True,
        normalize_coords: bool = True,
        box: Any = None,
    ) -> Found:
        """Clicks, or a box and clicks, on a frame; returns the masks of all objects there."""
        index = new_object(inference_state, obj_id)
        xy, kinds = given_clicks(points, labels, box, clears=clear_old_points)
        size_hw = (1, 1)
        if normalize_coords:
            size_hw = (inference_state["video_height"], inference_state["video_width"])
        clicks = Clicks(scale_points(xy, size_hw, self.image_size), kinds)
        given = inference_state["point_inputs_per_obj"][index]
        if not clear_old_points and frame_idx in given:
            clicks = stored_clicks(given[frame_idx]).and_also(clicks)
        given[frame_idx] = {"point_coords": clicks.xy[None], "point_labels": clicks.labels[None]}
        inference_state["mask_inputs_per_obj"][index].pop(frame_idx, None)
        store, read = self._place(inference_state, index, frame_idx)
        previous = self._previous(inference_state, index, store, frame_idx)
        features = self._features(inference_state, frame_idx)
        falls_back = self.settings.dynamic_multimask_via_stability
        outcome = click(self.core, features, clicks, read, previous, falls_back=falls_back)
        prompted = inference_state["temp_output_dict_per_obj"][index][store]
        prompted[frame_idx] = output_of(self._filled(outcome))
        masks = self._masks_on(inference_state, frame_idx, store)
        return frame_idx, inference_state["obj_ids"], masks

    def add_new_points(self, *args: Any, **kwargs: Any) -> Found:
        """The former name of `add_new_points_or_box`."""
        return self.add_new_points_or_box(*args, **kwargs)

    def add_new_mask(self, inference_state: State, frame_idx: int, obj_id: Any, mask: Any) -> Found:
        """A mask [H, W] on a frame, which becomes the output there."""
        index = new_object(inference_state, obj_id)
        given = np.asarray(to_host(mask)).astype(np.bool_)
        if given.ndim != 2:
            raise ValueError(f"a mask has two dimensions, got {list(given.shape)}")
        squeezed = resize_mask(given, self.image_size)
        stored = squeezed[None, None].astype(np.float32)
        inference_state["mask_inputs_per_obj"][index][frame_idx] = stored
        inference_state["point_inputs_per_obj"][index].pop(frame_idx, None)
        store = self._store_for(inference_state, index, frame_idx)
        outcome = paint(self.core, self._features(inference_state, frame_idx), squeezed)
        prompted = inference_state["temp_output_dict_per_obj"][index][store]
        prompted[frame_idx] = output_of(self._filled(outcome))
        masks = self._masks_on(inference_state, frame_idx, store)
        return frame_idx, inference_state["obj_ids"], masks

    def propagate_in_video_preflight(self, inference_state: State) -> None:
        """Encode the memories of prompted frames; called by `propagate_in_video`."""
        if not number_of_objects(inference_state):
            raise RuntimeError("No input points or masks are provided for any object")
        for index in range(number_of_objects(inference_state)):
            stores = inference_state["output_dict_per_obj"][index]
            for name, prompted in inference_state["temp_output_dict_per_obj"][index].items():
                for frame, output in prompted.items():
                    if output["maskmem_features"] is None:
                        self._encode_prompted(inference_state, frame, output)
                    stores[name][frame] = output
                prompted.clear()
            if not stores[COND]:
                name = inference_state["obj_idx_to_id"][index]
                raise RuntimeError(f"No input points or masks are provided for object id {name}")
            for frame in stores[COND]:
                stores[NON_COND].pop(frame, None)

    def propagate_in_video(
        self,
        inference_state: State,
        start_frame_idx: int | None = None,
        max_frame_num_to_track: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Found]:
        """Track all objects; yields frame index, ids and mask logits [N, 1, H, W] per frame."""
        self.propagate_in_video_preflight(inference_state)
        ids, count = inference_state["obj_ids"], number_of_objects(inference_state)
        frames = expected_frames(inference_state, start_frame_idx, max_frame_num_to_track, reverse)
        last = frames[-1] if len(frames) else None
        images = inference_state["images"]
        with feeding_from(images, self.core, last, is_reverse=reverse) as feed:
            for frame in frames:
                low = self._track(inference_state, frame, reverse, count, feed)
                yield frame, ids, self._at_video_size(inference_state, low)

    def clear_all_prompts_in_frame(
        self, inference_state: State, frame_idx: int, obj_id: Any, need_output: bool = True
    ) -> Found | None:
        """Remove all prompts of an object on a frame."""
        index = new_object(inference_state, obj_id)
        for prompts in ("point_inputs_per_obj", "mask_inputs_per_obj"):
            inference_state[prompts][index].pop(frame_idx, None)
        for store in inference_state["temp_output_dict_per_obj"][index].values():
            store.pop(frame_idx, None)
        stores = inference_state["output_dict_per_obj"][index]
        output = stores[COND].pop(frame_idx, None)
        if output is not None:
            stores[NON_COND][frame_idx] = output
            inference_state["frames_tracked_per_obj"][index].pop(frame_idx, None)
        if not need_output:
            return None
        return frame_idx, inference_state["obj_ids"], self._masks_on(inference_state, frame_idx)

    def remove_object(
        self, inference_state: State, obj_id: Any, strict: bool = False, need_output: bool = True
    ) -> tuple[list[Any], list[tuple[int, Tensor]]]:
        """Remove an object; returns the ids left, and masks of the frames it was prompted on."""
        index = inference_state["obj_id_to_idx"].get(obj_id)
        ids = inference_state["obj_ids"]
        if index is None:
            if strict:
                raise RuntimeError(f"Cannot remove object id {obj_id}: the ids are {ids}")
            return ids, []
        if len(ids) == 1:
            self.reset_state(inference_state)
            return inference_state["obj_ids"], []
        frames = {
            **inference_state["point_inputs_per_obj"][index],
            **inference_state["mask_inputs_per_obj"][index],
        }
        for frame in frames:
            self.clear_all_prompts_in_frame(inference_state, frame, obj_id, need_output=False)
        close_up(inference_state, index)
        updated = []
        if need_output:
            updated = [(frame, self._masks_on(inference_state, frame)) for frame in set(frames)]
        return inference_state["obj_ids"], updated

    def reset_state(self, inference_state: State) -> None:
        """Remove all objects; the video stays."""
        for key in (
            "obj_id_to_idx",
            "obj_idx_to_id",
            "obj_ids",
            "point_inputs_per_obj",
            "mask_inputs_per_obj",
            "output_dict_per_obj",
            "temp_output_dict_per_obj",
            "frames_tracked_per_obj",
        ):
            inference_state[key].clear()

    def _store_for(self, state: State, index: int, frame: int) -> str:
        """The store for a prompt's output: a frame not yet tracked becomes a conditioning frame."""
        is_tracked = frame in state["frames_tracked_per_obj"][index]
        keeps = self.settings.add_all_frames_to_correct_as_cond
        return NON_COND if is_tracked and not keeps else COND

    def _place(self, state: State, index: int, frame: int) -> tuple[str, BankRead | None]:
        """The store for the output, and the memories of a frame that was tracked before."""
        tracked = state["frames_tracked_per_obj"][index].get(frame)
        store = self._store_for(state, index, frame)
        if tracked is None:
            return store, None
        return store, self._read(state, index, frame, tracked["reverse"])

    def _read(self, state: State, index: int, frame: int, reverse: bool) -> BankRead:
        stores = state["output_dict_per_obj"][index]
        position = Position(frame, reverse, state["num_frames"])
        selection = self._policy.choose(position, stores[COND], stores[NON_COND])
        return bank_read(self.core, selection, stores)

    def _previous(self, state: State, index: int, store: str, frame: int) -> Array | None:
        """The logits a click refines: of the last prompt, else of tracking."""
        found = all_frames(state, index, store, frame)
        if found is None or found["pred_masks"] is None:
            return None
        previous: Array = found["pred_masks"][0, 0]
        return previous

    def _track(
        self, state: State, frame: int, reverse: bool, count: int, feed: FrameFeed | None
    ) -> Array:
        """All objects on one frame: low-resolution logits [N, 1, L, L]."""
        stores = [state["output_dict_per_obj"][index] for index in range(count)]
        moving = [index for index in range(count) if frame not in stores[index][COND]]
        if moving:
            features = self._features(state, frame, feed)
            reads = [self._read(state, index, frame, reverse) for index in moving]
            lengths = [(read.frames.shape[1], read.pointers.shape[1]) for read in reads]
            for group in alike(lengths, self.core.session.objects_at_once):
                read = joined([reads[i] for i in group], self.core)
                decoded, memory = track_objects(self.core, features, read)
                for i, outcome in enumerate(outcomes_of(decoded)):
                    output = output_of(self._filled(outcome))
                    with_memory(output, self._kept(memory[i : i + 1]), self.core)
                    stores[moving[group[i]]][NON_COND][frame] = output
        for index in range(count):
            state["frames_tracked_per_obj"][index][frame] = {"reverse": reverse}
        found = [obj[COND if frame in obj[COND] else NON_COND][frame] for obj in stores]
        return np.concatenate([self.core.buffers.download(o["pred_masks"]) for o in found])

    def _encode_prompted(self, state: State, frame: int, output: Output) -> None:
        binary = self.settings.binarize_mask_from_pts_for_mem_enc
        features, outcome = self._features(state, frame), as_outcome(output)
        memory = remember_prompted(self.core, features, [outcome], is_prompted=binary)
        with_memory(output, self._kept(memory), self.core)

    def _kept(self, memory: Any) -> Any:
        """A mask memory [1, T, 64] as it is stored: [T, 64]."""
        buffers = self.core.buffers
        buffers.write(stored := buffers.zeros(memory.shape, self._stored), [0], memory)
        return stored[0]

    def _filled(self, outcome: Outcome) -> Outcome:
        """The outcome with small holes filled, as it is shown."""
        area, buffers = self.settings.fill_hole_area, self.core.buffers
        if not area:
            return outcome
        filled = without_holes(buffers.download(outcome.logits), area)
        return replace(outcome, logits=buffers.upload(filled))

    def _features(self, state: State, frame: int, feed: FrameFeed | None = None) -> Features:
        """The encoded frame; as in the reference, the last is cached."""
        encoded: EncodedFrames = state["cached_features"]
        features = encoded.get(frame)
        ready = None if features is not None or feed is None else feed.get(frame)
        if ready is not None:
            features = encoded.put(frame, ready)
        return encoded(frame) if features is None else features

    def _masks_on(self, state: State, frame: int, store: str | None = None) -> Tensor:
        """The latest masks of all objects on a frame, -1024 where there are none: [N, 1, H, W]."""
        count = number_of_objects(state)
        if store is None:
            stores = state["temp_output_dict_per_obj"].values()
            store = COND if any(frame in one[COND] for one in stores) else NON_COND
        size_hw = (state["video_height"], state["video_width"])
        masks = np.full((count, 1, *size_hw), NO_OBJ_SCORE, np.float32)
        for index in range(count):
            found = all_frames(state, index, store, frame)
            if found is not None:
                low = self.core.buffers.download(found["pred_masks"][0, 0])
                masks[index, 0] = upscale_logits(low, size_hw)
        return self._shown(masks)

    def _at_video_size(self, state: State, low: Array) -> Tensor:
        return self._shown(upscale_logits(low, (state["video_height"], state["video_width"])))

    def _shown(self, masks: Array) -> Tensor:
        return tensor(without_overlaps(masks) if self.settings.non_overlap_masks else masks)


class SAM2VideoPredictorVOS(SAM2VideoPredictor):
    """The predictor that `vos_optimized=True` builds; every graph is compiled here anyway."""
