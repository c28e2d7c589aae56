"""Sessions of videos and streams, and prompts for them."""

from typing import Any

import numpy as np

from samgraph.compat.host import to_host
from samgraph.compat.tensor import tensor
from samgraph.compat.transformers.encoding import as_sizes
from samgraph.compat.transformers.processing import Sam2Processor
from samgraph.compat.transformers.video_session import Sam2VideoInferenceSession
from samgraph.errors import PromptError, VideoError
from samgraph.media.video.frames import open_frames
from samgraph.predict.prompts import BOX_LABELS
from samgraph.predict.video.prompts import resize_mask


class Sam2VideoProcessor(Sam2Processor):
    """The processor of images, which also makes sessions and adds prompts to them."""

    def __init__(self, image_processor: Any = None, video_processor: Any = None, **kwargs: Any):
        super().__init__(image_processor, **kwargs)
        self.video_processor = video_processor or self.image_processor

    def init_video_session(self, video: Any = None, **_: Any) -> Sam2VideoInferenceSession:
        """A session of a video: a file, a folder, frames, or an array [F, H, W, 3]; or of a stream.

        Devices and dtypes of the library have no effect: the model has its own.
        """
        if video is None:
            return Sam2VideoInferenceSession()
        source = open_frames(_frames(video))
        if source.length is None:
            raise VideoError("the number of frames must be known", expected="a list or an array")
        return Sam2VideoInferenceSession.of(source, self.target_size)

    def add_inputs_to_inference_session(
        self,
        inference_session: Sam2VideoInferenceSession,
        frame_idx: int,
        obj_ids: Any,
        input_points: Any = None,
        input_labels: Any = None,
        input_boxes: Any = None,
        input_masks: Any = None,
        original_size: Any = None,
        clear_old_inputs: bool = True,
    ) -> Sam2VideoInferenceSession:
        """Points, boxes or masks of objects on a frame, which the model uses when it runs there.

        Points are nested [image, object, point, xy], as for images, with one image.
        """
        ids = list(obj_ids) if isinstance(obj_ids, list | tuple) else [obj_ids]
        if (input_points is None) != (input_labels is None):
            raise PromptError("points and labels must be given together")
        if input_points is None and input_boxes is None and input_masks is None:
            raise PromptError("there is no prompt", expected="points, boxes or masks")
        if original_size is not None:
            ((height, width),) = as_sizes([original_size])
            inference_session.video_height, inference_session.video_width = height, width
        if input_masks is not None:
            if input_points is not None or input_boxes is not None:
                raise PromptError("masks cannot be given together with points or boxes")
            self._add_masks(inference_session, frame_idx, ids, input_masks)
        else:
            prompts = (input_points, input_labels, input_boxes)
            self._add_points(inference_session, frame_idx, ids, prompts, clear_old_inputs)
        return inference_session

    def _add_points(
        self, session: Any, frame: int, ids: list[Any], prompts: tuple[Any, ...], clears: bool
    ) -> None:
        if session.video_height is None:
            raise PromptError("`original_size` must be given with the first prompt of a stream")
        if prompts[2] is not None and not clears:
            raise PromptError("a box comes before any point", hint="use clear_old_inputs=True")
        sizes = [(session.video_height, session.video_width)]
        found = self._prompts(sizes, *prompts)
        counts = {name: array.shape[1] for name, array in found.items()}
        if set(counts.values()) != {len(ids)}:
            raise PromptError(
                "there must be a prompt for each object id",
                got=", ".join(f"{count} {name}" for name, count in counts.items()),
                expected=f"{len(ids)}",
            )
        for position, name in enumerate(ids):
            xy, labels = np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
            if "input_points" in found:
                labels = np.asarray(found["input_labels"])[0, position]
                kept = labels != self.point_pad_value
                xy = np.asarray(found["input_points"])[0, position][kept]
                labels = labels[kept]
            if "input_boxes" in found:
                corners = np.asarray(found["input_boxes"])[0, position].reshape(2, 2)
                xy = np.concatenate([corners, xy])
                labels = np.concatenate([np.array(BOX_LABELS, np.int64), labels])
            index = session.obj_id_to_idx(name)
            old = None if clears else session.point_inputs_per_obj[index].get(frame)
            if old is not None:
                xy = np.concatenate([np.asarray(old["point_coords"])[0, 0], xy])
                labels = np.concatenate([np.asarray(old["point_labels"])[0, 0], labels])
            coords, kinds = tensor(xy[None, None]), tensor(labels[None, None])
            inputs = {"point_coords": coords, "point_labels": kinds}
            session.add_point_inputs(index, frame, inputs)

    def _add_masks(self, session: Any, frame: int, ids: list[Any], masks: Any) -> None:
        given = list(masks) if isinstance(masks, list | tuple) else [masks]
        if len(given) == 1 and len(ids) > 1:
            given = list(np.asarray(to_host(given[0])))
        if len(given) != len(ids):
            raise PromptError(
                "there must be a mask for each object id", got=len(given), expected=len(ids)
            )
        for name, mask in zip(ids, given, strict=True):
            pixels: Any = np.asarray(to_host(mask)).astype(np.bool_)
            pixels = pixels.reshape(pixels.shape[-2:])
            if session.video_height is None:
                session.video_height, session.video_width = pixels.shape
            resized = resize_mask(pixels, self.target_size)
            session.add_mask_inputs(session.obj_id_to_idx(name), frame, tensor(resized))


def _frames(video: Any) -> Any:
    """Frames channels-last; tensors are channels-first."""
    host = to_host(video)
    is_stack = isinstance(host, np.ndarray) and host.ndim == 4
    if is_stack and host.shape[1] == 3 and host.shape[3] != 3:
        return np.ascontiguousarray(host.transpose(0, 2, 3, 1))
    return [to_host(frame) for frame in host] if isinstance(host, list | tuple) else host
