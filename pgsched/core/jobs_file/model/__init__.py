"""The model of a file of jobs: the types of its columns, the sections, and what is stored under the same names."""
