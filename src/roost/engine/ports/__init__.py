"""Ports that are held on a node."""
