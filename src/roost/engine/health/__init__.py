"""What is wrong with a machine or a cluster: facts, and what they mean."""
