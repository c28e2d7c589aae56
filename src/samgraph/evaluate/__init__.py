"""Mask quality: J&F of tracking, mean IoU of images, simulated clicks."""
