"""Finds the arrangement with the shortest iteration, with a proof; needs neither Ray nor a cluster."""
