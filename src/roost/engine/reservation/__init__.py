"""The accelerators a job reserves from Ray."""
