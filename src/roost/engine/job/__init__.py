"""The named actors of a job: an agent on each node, and three managers."""
