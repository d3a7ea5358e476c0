"""Ray behind a cluster: actors as processes, placement groups as reservations."""
