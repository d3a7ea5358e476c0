"""Roles of a training job, built from engine parts: train groups and rollout servers."""
