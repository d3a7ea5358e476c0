"""Configuration: YAML text with positions, the typed schema, and the rank language."""
