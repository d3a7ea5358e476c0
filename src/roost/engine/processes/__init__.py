"""Processes of this machine: their facts, and keeping children from outliving their parent."""
