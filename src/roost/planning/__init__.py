"""The plan: every placement of a job as one immutable value, with checks, digest and file format."""
