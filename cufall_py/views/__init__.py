"""Frames to text: pure functions. Where it goes, and what the terminal can do, is decided elsewhere."""
