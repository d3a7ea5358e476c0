"""Scripts and manifests that start Ray for a job on Slurm, on Kubernetes and on plain hosts. One module a target."""
