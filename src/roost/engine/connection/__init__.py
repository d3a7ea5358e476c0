"""The connection to Ray, the embedded Ray, and the discovery of nodes."""
