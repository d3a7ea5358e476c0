"""The live page of running jobs, and their metrics, over HTTP."""
