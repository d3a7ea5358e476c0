"""The plan: every placement of a job as one immutable value, with checks, digest and file format."""

from roost.planning.plan import ComponentPlan, Device, Plan, Use
from roost.planning.planner import plan
from roost.planning.saved import load_plan, save_plan

__all__ = ["ComponentPlan", "Device", "Plan", "Use", "load_plan", "plan", "save_plan"]
