"""Images and encoded images that tests of the image half share."""

from functools import cache

import numpy as np
import numpy.typing as npt

from samgraph.predict.image.encoded import EncodedImage, encode_image
from samgraph.predict.model import Model
from tests.golden import scenes
from tests.predict.models import small_model

SEED = 14
HEIGHT, WIDTH = scenes.HEIGHT, scenes.WIDTH


def picture() -> npt.NDArray[np.uint8]:
    """A drawn picture, 160 x 120."""
    return scenes.frame(0)


@cache
def model() -> Model:
    """The small model of `image_test.npz`."""
    return Model(small_model(SEED))


@cache
def encoded() -> EncodedImage:
    """The picture, encoded once for all tests."""
    return encode_image(model().core, picture(), name="scene.png")
