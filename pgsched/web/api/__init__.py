"""The JSON API of the console: its operations, their schemas, and the OpenAPI document."""
