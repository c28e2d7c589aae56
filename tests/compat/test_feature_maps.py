"""Feature maps as other libraries keep them, of every family."""

import numpy as np
import pytest

from samgraph.compat.feature_maps import features_of, maps_of
from samgraph.errors import InputError
from tests.models.sisters import SISTERS, small_sister


@pytest.mark.parametrize("name", SISTERS)
def test_maps_can_be_kept_and_set_again(name: str) -> None:
    core = small_sister(name).core
    side = core.config.image_size
    image = np.random.default_rng(0).standard_normal((1, 3, side, side)).astype(np.float32)
    features = core.encode(image)

    kept = maps_of(core, [features])
    again = features_of(core, kept)

    assert [m.shape[-1] for m in kept] == sorted((m.shape[-1] for m in kept), reverse=True)
    assert len(kept) == len(core.feature_shapes) == len(again.maps)
    for key, wanted in features.maps.items():
        np.testing.assert_allclose(np.asarray(again.maps[key]), np.asarray(wanted), atol=1e-5)
    with pytest.raises(InputError, match="not feature maps of this model"):
        features_of(core, kept[1:])
