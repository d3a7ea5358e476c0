"""The inventory of a cluster: nodes, their accelerators and hardware, and named groups of nodes."""
