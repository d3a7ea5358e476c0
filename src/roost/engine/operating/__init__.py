"""Shell commands on a job of another process: its logs, its stacks, its end."""
