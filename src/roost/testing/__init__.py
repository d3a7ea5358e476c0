"""A kit for testing how programs survive faults: it causes faults, and checks what is left."""
