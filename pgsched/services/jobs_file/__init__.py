"""Use cases of a file of jobs: plan what an apply would do, apply a file, export what there is as a file."""
