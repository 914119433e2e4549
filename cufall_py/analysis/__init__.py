"""What samples come to: arrays in, dataclasses out."""
