"""Channels of a job: what they hold, what processes wait for, and what was handed out."""
