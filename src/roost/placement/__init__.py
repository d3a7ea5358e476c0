"""Who goes where: placements, the strategies that make them, and the placements of a job's components."""
