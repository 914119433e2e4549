"""What samples come to: arrays in, dataclasses out; nothing here reads or writes a file."""
