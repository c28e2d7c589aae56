"""A video, or a stream, with its objects: its prompts and outputs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.host import to_host
from samgraph.compat.tensor import Tensor, tensor
from samgraph.compat.video_state import COND, NON_COND, LoadedFrames, new_object, no_objects
from samgraph.errors import PromptError
from samgraph.media.image.preprocess import resize_image
from samgraph.media.video.frames import FrameSource
from samgraph.models.family import SegmentationModel


class Sam2VideoInferenceSession:
    """Frames and objects of a video; made by `Sam2VideoProcessor.init_video_session`.

    Frames of a video are resized when they are needed; frames of a stream are kept as they came.
    """

    def __init__(
        self,
        video: Any = None,
        video_height: int | None = None,
        video_width: int | None = None,
        **_: Any,
    ) -> None:
        self.video_height, self.video_width = video_height, video_width
        self.source: FrameSource | None = None
        self._size = 0
        self._given: dict[int, NDArray[np.float32]] = {}
        for index, frame in enumerate([] if video is None else to_host(video)):
            self.add_new_frame(frame, index)
        self.pending: set[tuple[int, int]] = set()  # objects and frames with new prompts
        self._state = no_objects()
        self._encoded: LoadedFrames | None = None

    @classmethod
    def of(cls, source: FrameSource, size: int) -> "Sam2VideoInferenceSession":
        """The session of a source of frames, for models whose input is `size`."""
        session = cls(None, *source.size_hw)
        session.source, session._size = source, size
        return session

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """A frame as the model takes it, float32 [3, S, S]."""
        if self.source is not None:
            return resize_image(self.source.frame(index), self._size)
        if index not in self._given:
            raise PromptError(f"there is no frame {index}", got=f"{len(self._given)} frames")
        return self._given[index]

    @property
    def num_frames(self) -> int | None:
        """How many frames there are, of a stream so far; None where there is none yet."""
        return (self.source.length if self.source is not None else len(self._given)) or None

    @property
    def is_stream(self) -> bool:
        """Whether frames are given one by one."""
        return self.source is None

    @property
    def state(self) -> dict[str, Any]:
        """The objects, in the layout of `SAM2VideoPredictor`."""
        length = None if self.is_stream else self.num_frames
        return self._state | {"num_frames": length, "cached_features": self._encoded}

    @property
    def obj_ids(self) -> list[Any]:
        """The ids of the objects, in the order of their masks."""
        ids: list[Any] = self._state["obj_ids"]
        return ids

    @property
    def output_dict_per_obj(self) -> dict[int, Any]:
        """The outputs, by object, kind of frame, and frame index."""
        found: dict[int, Any] = self._state["output_dict_per_obj"]
        return found

    @property
    def point_inputs_per_obj(self) -> dict[int, Any]:
        """The points that were given, by object and frame."""
        found: dict[int, Any] = self._state["point_inputs_per_obj"]
        return found

    @property
    def mask_inputs_per_obj(self) -> dict[int, Any]:
        """The masks that were given, by object and frame."""
        found: dict[int, Any] = self._state["mask_inputs_per_obj"]
        return found

    @property
    def frames_tracked_per_obj(self) -> dict[int, Any]:
        """The frames that were tracked, by object."""
        found: dict[int, Any] = self._state["frames_tracked_per_obj"]
        return found

    def encoded_by(self, model: SegmentationModel) -> LoadedFrames:
        """The frames as a model encodes them; the last frame is cached."""
        if self._encoded is None or self._encoded.model is not model:
            self._encoded = LoadedFrames(self, model)
        return self._encoded

    def obj_id_to_idx(self, obj_id: Any) -> int:
        """The index of an object, which is added if it is new."""
        return new_object(self._state, obj_id)

    def obj_idx_to_id(self, obj_idx: int) -> Any:
        """The id of an object."""
        return self._state["obj_idx_to_id"][obj_idx]

    def get_obj_num(self) -> int:
        """How many objects there are."""
        return len(self.obj_ids)

    def add_point_inputs(self, obj_idx: int, frame_idx: int, inputs: dict[str, Any]) -> None:
        """Points of an object on a frame: `point_coords` and `point_labels`."""
        self.point_inputs_per_obj[obj_idx][frame_idx] = inputs
        self.mask_inputs_per_obj[obj_idx].pop(frame_idx, None)
        self.pending.add((obj_idx, frame_idx))

    def add_mask_inputs(self, obj_idx: int, frame_idx: int, inputs: Any) -> None:
        """A mask [S, S] of an object on a frame."""
        self.mask_inputs_per_obj[obj_idx][frame_idx] = inputs
        self.point_inputs_per_obj[obj_idx].pop(frame_idx, None)
        self.pending.add((obj_idx, frame_idx))

    def remove_point_inputs(self, obj_idx: int, frame_idx: int) -> None:
        """Remove the points of an object on a frame."""
        self.point_inputs_per_obj[obj_idx].pop(frame_idx, None)
        self._without_prompt(obj_idx, frame_idx)

    def remove_mask_inputs(self, obj_idx: int, frame_idx: int) -> None:
        """Remove the mask of an object on a frame."""
        self.mask_inputs_per_obj[obj_idx].pop(frame_idx, None)
        self._without_prompt(obj_idx, frame_idx)

    def _without_prompt(self, obj_idx: int, frame_idx: int) -> None:
        """Forget that there is a new prompt, where none is left."""
        given = (self.point_inputs_per_obj[obj_idx], self.mask_inputs_per_obj[obj_idx])
        if not any(frame_idx in prompts for prompts in given):
            self.pending.discard((obj_idx, frame_idx))

    def get_output(
        self,
        obj_idx: int,
        frame_idx: int,
        output_key: str,
        is_conditioning_frame: bool = True,
    ) -> Any:
        """One of an object's outputs on a frame, such as `pred_masks`; None where there is none."""
        store = self.output_dict_per_obj[obj_idx][COND if is_conditioning_frame else NON_COND]
        value = store.get(frame_idx, {}).get(output_key)
        if value is None or isinstance(value, list) or self._encoded is None:
            return value
        return tensor(self._encoded.model.buffers.download(value))

    def add_new_frame(self, pixel_values: Any, frame_idx: int | None = None) -> int:
        """A frame of a stream, float32 [3, S, S] or [1, 3, S, S]; returns its index."""
        index = len(self._given) if frame_idx is None else frame_idx
        pixels = np.asarray(to_host(pixel_values), np.float32)
        self._given[index] = pixels[0] if pixels.ndim == 4 else pixels
        return index

    def get_frame(self, frame_idx: int) -> Tensor:
        """A frame as the model takes it."""
        return tensor(self[frame_idx])

    def reset_tracking_data(self) -> None:
        """Remove all objects; the frames stay."""
        self.pending.clear()
        for part in self._state.values():
            part.clear()

    def reset_inference_session(self) -> None:
        """Remove all objects, and forget what was computed of the frames."""
        self.reset_tracking_data()
        self._encoded = None
