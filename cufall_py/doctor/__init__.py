"""What stands in the way of measuring here, and what to do about it: facts in, findings out."""
