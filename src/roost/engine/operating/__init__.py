"""Commands from a shell on a job of another process: its logs, its stacks, its end."""
