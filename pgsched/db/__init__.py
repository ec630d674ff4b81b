"""Everything that speaks SQL: connections, schema, queries, the embedded server and enqueueing."""
