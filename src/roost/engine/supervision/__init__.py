"""Supervision: a pure state machine that decides what is done when processes fail."""
