"""The model configurations used in tests, as plain fields.

`test` has the shape of the shared `test256`; `test2` is SAM 2.0 with what `test` leaves out: two
heads at stage 0, windows that do not divide the map (also in pooling blocks), a 14x14 background,
an image size that is not a power of two. The other eight are the released models.
"""

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class ModelFields:
    """Everything that tells one SAM 2 from another; names as in the reference where it has one."""

    image_size: int
    embed_dim: int
    num_heads: int
    stages: tuple[int, ...]
    global_att_blocks: tuple[int, ...]
    window_pos_embed_bkg_spatial_size: tuple[int, int]
    window_spec: tuple[int, ...]
    d_model: int = 256
    mem_dim: int = 64
    num_memory_layers: int = 4
    dim_feedforward: int = 2048
    num_maskmem: int = 7
    no_obj_embed_spatial: bool = True
    add_tpos_enc_to_obj_ptrs: bool = True
    proj_tpos_enc_in_obj_ptrs: bool = True
    use_signed_tpos_enc_to_obj_ptrs: bool = True

    @property
    def embedding_size(self) -> int:
        """Side of the stride-16 map."""
        return self.image_size // 16

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of the four stages, finest first."""
        return tuple(self.embed_dim * 2**i for i in range(len(self.stages)))

    def as_sam2_0(self) -> "ModelFields":
        """The same with the four switches of SAM 2.1 off."""
        return replace(
            self,
            no_obj_embed_spatial=False,
            add_tpos_enc_to_obj_ptrs=False,
            proj_tpos_enc_in_obj_ptrs=False,
            use_signed_tpos_enc_to_obj_ptrs=False,
        )

    def as_json(self) -> dict[str, int | bool | list[int]]:
        """Plain values, for the `__meta__` of a golden file."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


_TINY = ModelFields(1024, 96, 1, (1, 2, 7, 2), (5, 7, 9), (7, 7), (8, 4, 14, 7))
_SMALL = ModelFields(1024, 96, 1, (1, 2, 11, 2), (7, 10, 13), (7, 7), (8, 4, 14, 7))
_BASE_PLUS = ModelFields(1024, 112, 2, (2, 3, 16, 3), (12, 16, 20), (14, 14), (8, 4, 14, 7))
_LARGE = ModelFields(1024, 144, 2, (2, 6, 36, 4), (23, 33, 43), (7, 7), (8, 4, 16, 8))
_TEST = ModelFields(
    256,
    32,
    1,
    (1, 2, 3, 2),
    (4,),
    (7, 7),
    (8, 4, 14, 7),
    num_memory_layers=2,
    dim_feedforward=512,
)
_TEST2 = ModelFields(
    224,
    16,
    2,
    (1, 2, 2, 2),
    (4,),
    (14, 14),
    (8, 6, 10, 5),
    num_memory_layers=1,
    dim_feedforward=256,
).as_sam2_0()

OFFICIAL = {
    "sam2.1_tiny": _TINY,
    "sam2.1_small": _SMALL,
    "sam2.1_base_plus": _BASE_PLUS,
    "sam2.1_large": _LARGE,
    "sam2_tiny": _TINY.as_sam2_0(),
    "sam2_small": _SMALL.as_sam2_0(),
    "sam2_base_plus": _BASE_PLUS.as_sam2_0(),
    "sam2_large": _LARGE.as_sam2_0(),
}
CONFIGS = {"test": _TEST, "test2": _TEST2, "test256": _TEST, **OFFICIAL}
