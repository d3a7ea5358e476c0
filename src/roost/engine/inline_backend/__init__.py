"""One process behind a cluster, without Ray, so that `pdb` and coverage work."""
