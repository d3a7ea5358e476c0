"""Channels and data buffers of a job: their items, their waiting requests, and what they have handed out."""
