"""EdgeTAM (Zhou et al. 2025): a RepViT trunk, SAM 2's decoder, a memory of 512 tokens per frame."""
