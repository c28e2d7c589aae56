"""Videos: `model(inference_session, frame_idx=...)` runs one frame, prompted or tracked.

Shapes: N objects, L mask size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from samgraph.compat.sam2_video_predictor import SAM2VideoPredictor
from samgraph.compat.tensor import Tensor, tensor
from samgraph.compat.transformers.encoding import ModelOutput
from samgraph.compat.transformers.modeling import PretrainedModel
from samgraph.compat.transformers.video_session import Sam2VideoInferenceSession
from samgraph.compat.video_settings import VideoSettings
from samgraph.compat.video_state import (
    COND,
    NON_COND,
    as_outcome,
    bank_read,
    joined,
    output_of,
    with_memory,
)
from samgraph.errors import PromptError
from samgraph.models.family import BankRead, Features
from samgraph.predict.video.policy import Position
from samgraph.predict.video.step import (
    Clicks,
    alike,
    click,
    outcomes_of,
    paint,
    remember_prompted,
    track_objects,
)

_SETTINGS = VideoSettings(
    binarize_mask_from_pts_for_mem_enc=True, dynamic_multimask_via_stability=True
)


@dataclass
class Sam2VideoSegmentationOutput(ModelOutput):
    """All objects on one frame: logits [N, 1, L, L] and object scores [N, 1]."""

    object_ids: list[Any]
    pred_masks: Tensor
    object_score_logits: Tensor
    frame_idx: int


class Sam2VideoModel(PretrainedModel):
    """The library's model of videos on samgraph's graphs."""

    def forward(
        self,
        inference_session: Sam2VideoInferenceSession,
        frame_idx: int | None = None,
        frame: Any = None,
        reverse: bool = False,
        **_: Any,
    ) -> Sam2VideoSegmentationOutput:
        """Every object on one frame; `frame`, float32 [3, S, S], is the next frame of a stream."""
        session = inference_session
        if frame is not None:
            frame_idx = session.add_new_frame(frame, frame_idx)
        if frame_idx is None:
            raise PromptError("either `frame_idx` or `frame` must be given")
        if not session.get_obj_num():
            raise PromptError("there are no objects to track", hint="add inputs first")
        features = session.encoded_by(self.core)(frame_idx)
        tracked = []
        for index in range(session.get_obj_num()):
            if (index, frame_idx) in session.pending:
                self._prompted(session, index, frame_idx, features, reverse)
            elif frame_idx not in session.output_dict_per_obj[index][COND]:
                tracked.append(index)
        self._track(session, tracked, frame_idx, features, reverse)
        return self._output(session, frame_idx)

    def propagate_in_video_iterator(
        self,
        inference_session: Sam2VideoInferenceSession,
        start_frame_idx: int | None = None,
        max_frame_num_to_track: int | None = None,
        reverse: bool = False,
        show_progress_bar: bool = False,
    ) -> Iterator[Sam2VideoSegmentationOutput]:
        """Every frame from the first prompted frame on, or from `start_frame_idx`."""
        session, count = inference_session, inference_session.num_frames or 0
        if start_frame_idx is None:
            stores = session.output_dict_per_obj.values()
            found = [frame for store in stores for frame in store[COND]]
            found += [frame for _, frame in session.pending]
            if not found:
                raise PromptError("there is no frame to start from", hint="give `start_frame_idx`")
            start_frame_idx = min(found)
        most = count if max_frame_num_to_track is None else max_frame_num_to_track
        frames = range(start_frame_idx, min(start_frame_idx + most, count - 1) + 1)
        if reverse:
            end = max(start_frame_idx - most, 0)
            frames = range(start_frame_idx, end - 1, -1) if start_frame_idx > 0 else range(0)
        for index in frames:
            yield self(session, frame_idx=index, reverse=reverse)

    @property
    def _predictor(self) -> SAM2VideoPredictor:
        return SAM2VideoPredictor(self.core, _SETTINGS)

    def _prompted(
        self,
        session: Sam2VideoInferenceSession,
        index: int,
        frame: int,
        features: Features,
        reverse: bool,
    ) -> None:
        """One object from its prompts; a frame that was tracked before stays a tracked frame."""
        is_first = frame not in session.frames_tracked_per_obj[index]
        mask = session.mask_inputs_per_obj[index].get(frame)
        if mask is not None:
            outcome = paint(self.core, features, np.asarray(mask))
        else:
            given = session.point_inputs_per_obj[index][frame]
            xy, labels = (np.asarray(given[f"point_{part}"])[0, 0] for part in ("coords", "labels"))
            read = None if is_first else self._read(session, index, frame, reverse)
            outcome = click(self.core, features, Clicks(xy, labels), read)
        session.pending.discard((index, frame))
        output = output_of(outcome)
        memory = remember_prompted(self.core, features, [as_outcome(output)])
        with_memory(output, self._predictor._kept(memory), self.core)
        session.output_dict_per_obj[index][COND if is_first else NON_COND][frame] = output
        if not is_first:
            session.frames_tracked_per_obj[index][frame] = {"reverse": reverse}

    def _track(
        self,
        session: Sam2VideoInferenceSession,
        objects: list[int],
        frame: int,
        features: Features,
        reverse: bool,
    ) -> None:
        reads = [self._read(session, index, frame, reverse) for index in objects]
        lengths = [(read.frames.shape[1], read.pointers.shape[1]) for read in reads]
        for group in alike(lengths, self.core.session.objects_at_once):
            read = joined([reads[i] for i in group], self.core)
            decoded, memory = track_objects(self.core, features, read)
            for i, outcome in enumerate(outcomes_of(decoded)):
                output = output_of(outcome)
                with_memory(output, self._predictor._kept(memory[i : i + 1]), self.core)
                index = objects[group[i]]
                session.output_dict_per_obj[index][NON_COND][frame] = output
                session.frames_tracked_per_obj[index][frame] = {"reverse": reverse}

    def _read(
        self, session: Sam2VideoInferenceSession, index: int, frame: int, reverse: bool
    ) -> BankRead:
        stores = session.output_dict_per_obj[index]
        if not stores[COND]:
            name = session.obj_idx_to_id(index)
            raise PromptError(
                f"object `{name}` has no prompt yet",
                hint="first run a frame with its prompt",
            )
        length = None if session.is_stream else session.num_frames
        position = Position(frame, reverse, length)
        selection = self._predictor._policy.choose(position, stores[COND], stores[NON_COND])
        return bank_read(self.core, selection, stores)

    def _output(
        self, session: Sam2VideoInferenceSession, frame: int
    ) -> Sam2VideoSegmentationOutput:
        stores = session.output_dict_per_obj.values()
        found = [store[COND if frame in store[COND] else NON_COND][frame] for store in stores]
        download = self.core.buffers.download
        masks = np.concatenate([download(output["pred_masks"]) for output in found])
        scores = np.concatenate([download(output["object_score_logits"]) for output in found])
        ids = list(session.obj_ids)
        return Sam2VideoSegmentationOutput(ids, tensor(masks), tensor(scores), frame)
