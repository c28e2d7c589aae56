"""The memory policy of a server's videos."""

from pathlib import Path

import pytest
from PIL import Image

from samgraph.errors import OptionError
from samgraph.predict.video.policies.quality import QualityGatedPolicy
from samgraph.serve.options import ServeOptions
from samgraph.serve.video_sessions import open_upload
from tests.golden import scenes
from tests.predict.models import tiny_model


def test_videos_are_tracked_with_the_policy_of_the_server(tmp_path: Path) -> None:
    Image.fromarray(scenes.frame(0)).save(tmp_path / "0.png")
    options = ServeOptions(folder=tmp_path, policy="quality-gated")

    with open_upload(tiny_model(), tmp_path, None, options.policy) as video:
        assert isinstance(video.policy, QualityGatedPolicy)
    with pytest.raises(OptionError, match="no memory policy `best`"):
        ServeOptions(folder=tmp_path, policy="best")
