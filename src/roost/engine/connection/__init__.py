"""The connection to Ray, the embedded Ray, and which nodes there are."""
