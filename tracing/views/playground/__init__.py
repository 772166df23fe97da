"""The playground: what a loader's options do, on a model of it, in a page that needs nothing else."""
