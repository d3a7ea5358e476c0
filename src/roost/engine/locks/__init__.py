"""Locks on the devices of a node."""
