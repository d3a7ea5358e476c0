"""Placements, the strategies that make them, and the placement rules of layouts."""
