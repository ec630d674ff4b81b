"""Output on a terminal or into a pipe: tables, fields, JSON, and the live view of the demo."""
