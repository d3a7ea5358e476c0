"""Supervision: a pure state machine that decides what to do when processes fail."""
