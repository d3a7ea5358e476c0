"""A kit for programs that want to know how they survive: faults, and assertions about what is left."""
