"""Codecs: how the values of an annotation travel as JSON, as a task's arguments and results."""
