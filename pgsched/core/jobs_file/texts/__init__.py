"""The text of a file of jobs: read YAML and TOML with the line of each value, and write both."""
