"""What there is to place on: nodes, their accelerators and hardware, and named groups of nodes."""
