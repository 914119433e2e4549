"""Tests on a real GPU: `python -m pytest tests/gpu -m gpu`. CUFALL_GPU_REPORT=FILE collects their figures as JSON."""
