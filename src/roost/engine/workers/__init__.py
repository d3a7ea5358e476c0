"""A worker: its base class, its environment, its call log, and the results of calls."""
