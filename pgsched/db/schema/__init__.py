"""The schema: its tables, its revisions, its roles, and the check for differences."""
