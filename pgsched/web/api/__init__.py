"""The JSON API: its operations, their schemas, the OpenAPI document."""
