"""Loading a checkpoint that is not whole: what is missing is named."""

import pytest

from samgraph.errors import CheckpointError
from samgraph.models.loading import load_model
from samgraph.models.sam2.config import CONFIGS
from tests.models.sam2.bench import known_weights


@pytest.mark.parametrize(
    "name",
    [
        "maskmem_tpos_enc",
        "memory_encoder.out_proj.bias",
        "no_obj_embed_spatial",
        "obj_ptr_tpos_proj.bias",
    ],
)
def test_one_missing_tensor_of_the_memory_is_named(name: str) -> None:
    weights = dict(known_weights(CONFIGS["sam2.1-tiny"], 5))
    del weights[name]

    with pytest.raises(CheckpointError) as caught:
        load_model(weights)

    assert "(1 missing, 0 unexpected, 0 of another shape)" in str(caught.value)
    assert f"missing:    `{name}`" in str(caught.value)
    assert "no video memory" not in str(caught.value)
