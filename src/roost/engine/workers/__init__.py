"""A worker: its base class, its environment, and what calls on it return."""
