"""EfficientTAM (Xiong et al. 2024): a plain ViT, SAM 2's decoder, optionally a pooled memory."""
