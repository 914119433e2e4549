"""Frames and samples to files that other programs read."""
