"""Renderers of a plan. They show what was decided and decide nothing."""
