"""Renderers of plans, runs and jobs. They show decisions and make none."""
