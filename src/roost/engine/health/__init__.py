"""The health of a machine or a cluster: its facts, and findings about them."""
