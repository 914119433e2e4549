"""The parts of run.py."""
