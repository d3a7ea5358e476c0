"""Renderers of a plan. They decide nothing."""
