"""The schema: its tables, its revisions, its roles, and the check that it is as it should be."""
